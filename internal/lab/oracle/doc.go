// Program oracle holds a build of sluice to an older one: what code was moved, renamed or
// made smaller must say and load the same. `make oracle BEFORE=OLD-SLUICE` runs it.
//
// Each example and many seeded policies, good and bad, are given to both programs.
// Exit status, both outputs and every file that they write must be equal to the byte,
// and the newer one must not say that it found a bug in Sluice.
// Then, in throw-away network namespaces, the older program leaves what it leaves on
// a host: generations, bans, trials, lists. The newer one goes on from there, and the
// older one from a twin of it, and both must say the same and leave the same rules
// and files behind, except for times. See scenarios.go.
//
// What only an equal kernel answers equally is left out: commands that measure.
package main
