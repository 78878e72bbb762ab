dtmc
const int N = 10;
const double p = 0.6;
module g
  x : [0..N] init 3;
  [play] 0<x & x<N -> p : (x'=x+1) + 1-p : (x'=x-1);
  [] x=0 | x=N -> true;
endmodule
label "rich" = x=N;
label "over" = x=0 | x=N;
rewards "won" [play] x<N : p; endrewards
rewards "plays" 0<x & x<N : 1; endrewards
