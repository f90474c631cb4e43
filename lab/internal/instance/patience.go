package instance

import (
	"fmt"
	"time"
)

// StartPatience is how long a lab waits for any one of its parts to start. It only ends what never will: where other
// labs start and compilers run on the same two cores, an API server that takes 8 s alone was not ready after 90.
const StartPatience = 5 * time.Minute

// SayEvery is how often a wait that goes on says so.
const SayEvery = 15 * time.Second

// Awaiting returns a function for a loop that waits, to be called at each look with what is still missing. Once every
// SayEvery it says that what is awaited is not ready, for how long, and why.
func Awaiting(what string, say func(string)) func(missing error) {
	began := time.Now()
	said := began
	return func(missing error) {
		now := time.Now()
		if now.Sub(said) < SayEvery {
			return
		}
		said = now
		text := fmt.Sprintf("%s is not ready after %s", what, now.Sub(began).Round(time.Second))
		if missing != nil {
			text += ": " + missing.Error()
		}
		say(text)
	}
}
