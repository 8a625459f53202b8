// Package judge says what the policy of a fleet, or a draft of it, means for its hosts, to
// people who ask a controller: what is wrong with it, and what it opens and closes against
// what was published. Callers: the controller, which says which hosts there are and what
// bundles are made of.
//
// Texts come from people who may only read, so they name no file of this machine and no list
// is downloaded for them; and one question is judged at a time, for a minute and within some memory,
// so that agents never wait.
package judge
