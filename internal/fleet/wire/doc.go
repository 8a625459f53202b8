// Package wire is what a fleet's controller and its agents say to each other. openapi.yaml
// describes it; the types are generated from it (scripts/generate). Callers: the
// controller and its hub, the agent's fleet half, and what plays many agents.
//
// # Levels
//
// What the stream means is its level, negotiated as the WebSocket's subprotocol: the dialer
// offers all of its Levels, and the other side takes the highest that both have. A program
// speaks its own level and the one before, so either side may be upgraded first; further
// apart they are refused with one sentence. Within a level, fields and messages may be
// added: who does not know one passes over it. A new value of an enum, and a changed
// meaning, make a new level; whoever sends asks Conn.Level what the other one knows. The
// paths of HTTP keep their /v1.
package wire
