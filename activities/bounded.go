package activities

import (
	"time"

	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// A Survey is small whatever the spec and the pods say: so many of each kind are told, and the others at a later look.
const (
	mostErrors  = 16
	mostText    = 400      // bytes
	mostDiscard = 256      // pods
	mostSkipped = 48 << 10 // bytes of names
)

func (s Survey) bounded() Survey {
	s.Refused, s.Warned = few(s.Refused), few(s.Warned)
	s.Unavailable = storage.Clip(s.Unavailable, mostText)
	if len(s.Discard) > mostDiscard {
		s.Discard = s.Discard[:mostDiscard]
		if s.LookAgain == 0 || s.LookAgain > time.Second {
			s.LookAgain = time.Second
		}
	}
	size := 0
	for i, osd := range s.Skipped {
		if size += len(osd); size > mostSkipped {
			s.Skipped = s.Skipped[:i]
			break
		}
	}
	for i := range s.Superfluous {
		s.Superfluous[i].Why = storage.Clip(s.Superfluous[i].Why, mostText)
	}
	return s
}

func few(errs []input.Error) []input.Error {
	var out []input.Error
	for _, e := range errs[:min(len(errs), mostErrors)] {
		e.Field, e.Value, e.Allowed = storage.Clip(e.Field, mostText), storage.Clip(e.Value, mostText),
			storage.Clip(e.Allowed, mostText)
		out = append(out, e)
	}
	return out
}
