dtmc
module a
  x : [0..2];
  [go] x = 0 -> 0.25 : (x'=1) + 0.75 : (x'=2);
  [] x = 1 -> (x'=0);
  [] x = 1 -> 0.5 : (x'=2) + 0.5 : true;
endmodule
module b
  y : [0..1];
  [go] y = 0 -> 1/3 : true + 2/3 : (y'=1);
endmodule
rewards "go" [go] true : 3; [] true : 1; x = 2 : 5; endrewards
