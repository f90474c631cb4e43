package budget

import (
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Question returns the failure domain that would open, or of which the lease would be granted, if every daemon outside
// of it gave a sign of life; false when nothing depends on that.
func Question(in Input) (storage.FailureDomain, bool) {
	supposing := in
	supposing.Life = &storage.Life{}
	// Nothing is granted here: who would be first decides what is asked.
	l, granted := grant(supposing)
	if len(granted) > 0 && !granted[0].OfMon() { // the mons have shown that they live
		c := granted[0]
		c.Stops = Stops(supposing, c)
		return supposing.turn(c), true
	}
	supposing.Lease = l
	if d := Decide(supposing); d.Mode == ModeOpen && !supposing.asHeld().stands(d.Open) {
		return d.Open, true
	}
	return storage.FailureDomain{}, false
}

// stands tells whether a failure domain is open already, so that nothing opens if it stays so. Where nothing could be
// left out of the budget, since the domain had no pods, it opens when the first of them is there.
func (in Input) stands(d storage.FailureDomain) bool {
	return in.Opened == d && (len(in.LeftOut) > 0 || len(in.View.Domain(d.Name).LabelValues) == 0)
}

// labelValues are what the budget must leave out for an open domain. While all of its pods are away that is what it
// left out before: to close it and to open it again when they are back would be an opening.
func (in Input) labelValues(d storage.Domain) []string {
	if len(d.LabelValues) == 0 && in.domain(d.Name) == in.Opened && in.together != d.Name {
		return in.LeftOut
	}
	return d.LabelValues
}
