package budget

import (
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Question returns the failure domain that would open, or of which the lease would be granted, if every daemon outside of it gave
// a sign of life; false when nothing depends on that.
func Question(in Input) (storage.FailureDomain, bool) {
	supposing := in
	supposing.Life = &storage.Life{}
	// Nothing is granted here: who would be first decides what is asked.
	l, granted := Grant(supposing, anyClaim)
	if len(granted) > 0 {
		c := granted[0]
		c.Stops = Stops(supposing, c)
		return supposing.turn(c), true
	}
	supposing.Lease = l
	if d := Decide(supposing); d.Mode == ModeOpen && d.Open != in.Opened {
		return d.Open, true
	}
	return storage.FailureDomain{}, false
}
