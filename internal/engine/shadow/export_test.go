package shadow

// SortStages is how base chains are asked.
var SortStages = sortStages

// InTime is the set by which the nftables backend ends the counting.
const InTime = "in_time_00000001"
