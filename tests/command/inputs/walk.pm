dtmc
module m
  x : [0..102];
  [] x < 100 -> 0.5 : (x'=x+1) + 0.5 : (x'=max(0,x-1));
  [] x = 100 -> 1e-300 : (x'=101) + 1e-300 : (x'=102) + 1-2e-300 : (x'=99);
endmodule
label "all" = x >= 0;
label "none" = x < 0;
