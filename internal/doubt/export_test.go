package doubt

// Kinds is how many there are.
var Kinds = len(kinds)
