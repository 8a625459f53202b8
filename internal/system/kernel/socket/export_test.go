package socket

// Converted is convert.
var Converted = convert
