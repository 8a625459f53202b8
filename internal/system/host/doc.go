// Package host says what this machine is.
//
// Facts is what it is: interfaces, addresses, routes, the rules of other tools,
// who is logged in. Describe reads them in the network namespace of the
// calling thread; engine asks for them; resolve, compile and check take them as plain data.
//
// What its kernel can do is asked by backends, which try it; Answers is what that
// depends on.
//
// The package reads and changes nothing; the kernel is asked through the
// packages below internal/system/kernel.
package host
