package lease

import "github.com/lockkeeper/lockkeeper/internal/storage"

// MonType is the type of what a job claims that takes a mon away, or has one join. It is no failure domain of the
// pools: nothing opens for such a claim. As long as it is held no failure domain is granted, and no other mon may go.
const MonType = "mon"

// Mon is what a job claims for a step that changes the monmap, or restarts a mon.
func Mon(name string) storage.FailureDomain { return storage.FailureDomain{Type: MonType, Name: name} }

// OfMon tells whether a claim is about a mon, and no failure domain.
func (c Claim) OfMon() bool { return c.Domain.Type == MonType }

// MonHeld is the mon that the holder of the lease takes away, or has join; "": the lease is free, or of a failure
// domain.
func (s State) MonHeld() string {
	if len(s.Holders) == 0 || !s.Holders[0].OfMon() {
		return ""
	}
	return s.Holders[0].Domain.Name
}
