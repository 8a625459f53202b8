// Package starter writes the first policy of a host: from what listens on it
// and who is logged in. cli's init calls it.
//
// Everything but ssh is commented out, so that nothing is opened that nobody
// asked for; the reason is next to each line. New connections of those who
// are logged in now stay allowed, whatever port their ssh server listens on.
package starter
