// Package trust decides what a host of a fleet believes: which policies, which live
// entries, which controller, which other host. Callers: the agent ([Host]), the
// controller ([Online]), and package operator, which is the operator's side and alone
// holds the keys that sign policies.
//
// Roles and signatures are those of The Update Framework, by go-tuf: root.json names the keys of all roles, targets.json lists the signed
// bundles, snapshot.json and timestamp.json, which a controller signs, say which
// targets.json is the newest. Three things are Sluice's own, each in a signed member
// "sluice" of a document: of root.json the fleet's name, the live keys and the CA; of
// targets.json the fleet's name, the incarnation and the floor; of timestamp.json the
// head of the audit chain. Live entries and orders that change labels travel in DSSE
// envelopes (https://github.com/secure-systems-lab/dsse).
//
// All keys of roles are ed25519. Nothing here reads a clock: the caller says what time
// it is. Whatever comes from outside is bounded in size and looked over before go-tuf
// sees it, which takes well-formed documents for granted.
package trust
