dtmc
const double p; const int K = 5;
module m
    x : [0..K];
    [] x < K -> p : (x'=x+1) + 1-p : (x'=0);
    [] x > 1 & x < K -> p/2 : (x'=x-1) + 1-p/2 : true;
endmodule
rewards x > 1 : p; endrewards
