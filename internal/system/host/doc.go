// Package host says what this machine is and what it can do.
//
// Facts is what it is: interfaces, addresses, routes, the rules of other tools,
// who is logged in. Describe reads them in the network namespace of the
// calling thread; resolve, compile and check take them as plain data.
//
// Capabilities is what it can do: each feature of the kernel is asked for by
// trying it, never told by a version.
//
// The package reads and changes nothing; the kernel is asked through the
// packages below internal/system/kernel.
package host
