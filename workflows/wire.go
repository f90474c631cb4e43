package workflows

// This file is names on the wire that speak of one kind of storage although they stand for what all have. Histories
// know them, so that they stay.

// switchFlag is the activity that switches the storage's flag on hosts.
var switchFlag = keeping.SwitchNoout
