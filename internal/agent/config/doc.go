// Package config is the agent's file, /etc/sluice/agent.yaml: who may do what by the
// agent's socket, and which network namespaces it serves. It is read as strictly as a policy, and says what is wrong in the same
// words, with file, line and column. Callers: cli, for the agent and for checking.
package config
