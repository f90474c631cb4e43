package monplan

import (
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Image is what is known of the image that mons are to have. At most one of its reasons is set; none: they may have it.
type Image struct {
	Refused string // why none of them can start with it as things are
	Waits   string // what has to happen, or to be known, before any of them tries
}

// GivesImage tells whether a step starts a mon with the spec's image.
func (s Step) GivesImage() bool {
	gives := func(a Act) bool { return a.Do == Start || a.Do == RestartMon }
	return s.Work != nil && s.Work.Undo == "" && slices.ContainsFunc(s.Acts, gives)
}

// MayHave answers whether a step may start a mon with it. A dead mon is replaced, and a missing one made, although
// nobody knows the image's version: a newcomer that does not start does no harm to those that serve, and is taken back.
func (i Image) MayHave(kind Kind) storage.Answer {
	switch {
	case i.Refused != "":
		return no("%s", i.Refused)
	case i.Waits != "" && kind != FailOver && kind != Add:
		return no("%s", i.Waits)
	}
	return yes()
}

// begins is what comes instead of a step that would start a mon with it.
func (i Image) begins(w Work, why string) (step Step, stays bool) {
	if w.Newcomer == "" && w.Kind != Restart {
		return Step{}, false
	}
	a := i.MayHave(w.Kind)
	if a.OK {
		return Step{}, false
	}
	step = Step{Verdict: Wait, Why: why + "; " + a.Reason}
	if i.Refused != "" {
		step.Verdict = Refuse
	}
	return step, true
}
