package conntrack

// AdoptWithin is Adopt with so much room in the table.
var AdoptWithin = adoptWithin
