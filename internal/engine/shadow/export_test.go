package shadow

// SortStages is how base chains are asked.
var SortStages = sortStages

// InTime is the set that ends the counting.
const InTime = inTime
