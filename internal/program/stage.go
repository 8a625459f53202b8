package program

// Stage says what a rule of a base chain is for. Within a base chain rules
// are in the order of Stages, whatever order they were made in.
type Stage string

// Stages of a packet's decision.
const (
	StageLoopback Stage = "loopback"
	StageHeld     Stage = "held"     // guests, to their own sources
	StageRewrite  Stage = "rewrite"  // changes the packet, decides nothing
	StageExcepted Stage = "excepted" // bans, of whom commands let in over them
	StageBan      Stage = "ban"      // of every packet
	StageOffload  Stage = "offload"
	StageProof    Stage = "proof"     // handshakes that limits count
	StageFlow     Stage = "flow"      // more of TCP and UDP flows that are established, or seem so before tracking
	StageAside    Stage = "aside"     // what has a chain of its own behind established flows
	StageBanFlows Stage = "ban-flows" // of what begins a flow
	StageNeeded   Stage = "needed"    // ICMP that the network cannot work without
	StageState    Stage = "state"     // established, related
	StageInvalid  Stage = "invalid"   // packets that no connection explains
	StageAnswers  Stage = "answers"   // answers that no state covers: DHCP, untracked services
	StageTrack    Stage = "track"     // what is kept out of connection tracking
	StageRules    Stage = "rules"     // the policy's own
)

// Stages is the order in which a base chain decides, with the reason for each
// place.
var Stages = []struct {
	Stage  Stage
	Reason string
}{
	{StageLoopback, "the host talks to itself whatever the policy says"},
	{StageHeld, "who is what a packet says decides all that follows, and flows that exist are asked too: another guest may guess what they are"},
	{StageRewrite, "an established flow's SYN-ACK needs its segment size clamped too"},
	{StageExcepted, "which of its packets go by a ban is told by port and by flow, and those of an established flow may be of another service"},
	{StageBan, "a ban by command holds for flows that exist as well, and comes while the policy runs"},
	{StageProof, "a handshake is counted by the first packet that proves it, before a rule accepts the flow or hands it over"},
	{StageOffload, "a flow is handed over when it is established, before the rule that accepts it"},
	{StageFlow, "most packets are of established flows, so they are asked for nothing else"},
	{StageAside, "a chain of its own has all that follows which is about the packet"},
	{StageBanFlows, "flows of banned addresses are deleted when the ban comes, so only what begins one is asked, and a ban by a limit holds for no other; a ban wins over all that follows"},
	{StageNeeded, "an error about untracked traffic is invalid to connection tracking, yet path MTU discovery needs it; requests are asked past the state, so that limits count each"},
	{StageState, "replies are decided before any rule could refuse them by their source"},
	{StageInvalid, "what belongs to no connection has nothing to hope for from the rules"},
	{StageAnswers, "answers that no state covers"},
	{StageTrack, "only what is not banned is worth a decision on tracking"},
	{StageRules, "what the policy says, for new flows"},
}
