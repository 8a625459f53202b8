// Package api is the product's local interface: what an agent answers on its Unix
// socket. openapi.yaml describes it; types of requests and the routes are generated from
// it (scripts/generate), and its results are the engine's own types, as the commands
// print them with --json. Callers: agent/client, the agent, and whoever else speaks to
// one.
//
// A handler reads a request with MeantBy and Read, and answers through an Answer, which
// sends each line at once; the writers that the generator has for results hold lines back
// until the end.
package api
