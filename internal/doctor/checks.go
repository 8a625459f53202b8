package doctor

import "slices"

// checks in the order in which their findings are told, of the same severity: what loses
// packets before what slows them, and causes before their effects.
var checks = []Check{
	// One line a check.
	tableFull,
	repliesCut,
	neighboursFull,
	listenQueue,
	filesFull,
	backlogFull,
	ringFull,
	sendRingFull,
	portsShared,
	reversePath,
	udpBuffers,
	tcpMemory,
	insertFailed,
	synCookies,
	setFull,
	tableSize,
	tableDead,
	tableOneSource,
	tableBuckets,
	linearRules,
	establishedLate,
	noFlowtable,
	ipv6Open,
	publishedPast,
	twoFirewalls,
	judgedAgain,
	dnatDead,
	tooBigDropped,
	rulesBusy,
	oneProcessor,
	stolen,
	throttled,
	logBusy,
	logUnlimited,
	hiddenRules,
	unhitRules,
	offloadsOff,
	setKind,
	trackingUnneeded,
	bridgedFrames,
	dropped,
	natHairpin,
	mssUnclamped,
	listensWide,
}

// Checks are all that there are.
func Checks() []Check { return slices.Clone(checks) }
