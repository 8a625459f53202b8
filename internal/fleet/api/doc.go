// Package api is a controller's interface for commands, on a Unix socket. openapi.yaml
// describes it; types and routes are generated from it (scripts/generate). Callers: the
// controller, which answers, and the commands of sluice-controller, by Client.
package api
