dtmc
const double p;
module m
  x : [0..9];
  [] x < 9 -> p : (x'=x+1) + 1-p : (x'=0);
  [] x > 4 & x < 9 -> p/2 : (x'=x-1) + 1-p/2 : true;
endmodule
