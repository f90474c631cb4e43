// Package doubt keeps apart what a keeper knows and what has happened since. It is pure.
//
// What is known of a storage cluster ages without a word: a pod stops serving before the cluster's map says that its
// daemon is gone, somebody edits a budget, the storage cluster falls silent. Each of these raises a doubt. Doubts are
// numbered, and the numbers only rise. A fact carries the number of the last doubt as of when it was asked for, and it
// counts until a later doubt is about it. So nothing has to be reset in the right places: what was not asked for anew
// does not count.
package doubt

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Seq is the number of a doubt, and as of which doubt a fact is. The first doubt is 1.
type Seq int64

// Kind is what raised a doubt.
type Kind string

// The kinds.
const (
	PodStopped Kind = "PodStopped" // the pod of a storage daemon stopped serving
	Alarmed    Kind = "Alarmed"    // somebody closed the budgets in a hurry
	Vanished   Kind = "Vanished"   // a daemon has no pod any more, and nobody saw it leave
	Silenced   Kind = "Silenced"   // the storage cluster was silent for a while
	Mute       Kind = "Mute"       // the storage cluster does not answer
	Tampered   Kind = "Tampered"   // a budget is not what we made it
	Changed    Kind = "Changed"    // something changed that a budget may have been a part of
	Opening    Kind = "Opening"    // somebody is about to be let go
)

// about is what may be wrong because of a doubt.
type about struct {
	data     bool // where the data is, as it was proved, and who gave a sign of life
	everyone bool // that all live whom the storage cluster's map calls up
	budgets  bool // what the budgets say
	closes   closes
}

// closes tells which budgets a doubt does not leave as they are until somebody has looked. Nobody looks as quickly as
// an eviction is granted.
type closes int

const (
	never closes = iota
	// atRest: the daemon may be the one that may go anywhere. And if its failure domain is to open, that begins from
	// closed budgets anyway.
	atRest
	unlessClosed
	always // whatever was written is no longer there
)

// kinds says of each kind what it is about. Those that a look raises close nothing: what it decides follows at once.
var kinds = map[Kind]about{
	// The pod may be replaced and ready again before the storage cluster has noticed that its daemon was away.
	PodStopped: {data: true, closes: atRest},
	// Whatever the budgets say by now: an opening that the alarm refused leaves them closed, and the proof that it stood
	// on.
	Alarmed: {data: true},
	// A pod that no controller looks after leaves nothing behind; whether its daemon is gone with it, only a sign of life
	// can tell.
	Vanished: {data: true, everyone: true},
	// Meanwhile nobody could tell them who went down.
	Silenced: {data: true, everyone: true},
	// Whoever looks next may be another worker, which has heard of no silence.
	Mute:     {everyone: true, closes: unlessClosed},
	Tampered: {budgets: true, closes: always},
	Changed:  {budgets: true},
	// Nothing that is known is wrong. But whatever opens begins from closed budgets, and with a look after that: closed
	// before the first look, that one does.
	Opening: {closes: atRest},
}

// Raised is a doubt that nobody has answered yet.
type Raised struct {
	Kind Kind   `json:"kind"`
	Why  string `json:"why"`
}

// State is which doubts there are. The zero State has none, and facts as of 0 count.
type State struct {
	Last Seq `json:"last,omitempty"`
	// Data, Everyone and Budgets are the last doubts about each of these.
	Data     Seq `json:"data,omitempty"`
	Everyone Seq `json:"everyone,omitempty"`
	Budgets  Seq `json:"budgets,omitempty"`
	// DataAt is when Data was raised: who proves anything of the data begins anew with a doubt that he has not heard of.
	DataAt time.Time `json:"dataAt,omitzero"`
	// Heard is as of which doubt it was proved that everyone lives.
	Heard Seq `json:"heard,omitempty"`
	// Unanswered are those that close, and have not closed yet.
	Unanswered []Raised `json:"unanswered,omitempty"`
	// Noticed is what the last look told that raises a doubt when it changes.
	Noticed Noticed `json:"noticed,omitzero"`
}

// Noticed is what a look tells of what happened before it.
type Noticed struct {
	Silent time.Time `json:"silent,omitzero"`  // the last silence of the storage cluster
	Unseen int       `json:"unseen,omitempty"` // how many daemons have no pod
	Alarms string    `json:"alarms,omitempty"` // that are written on the budgets
}

// Raise raises a doubt.
func (s *State) Raise(at time.Time, kind Kind, why string) {
	s.Last++
	is := kinds[kind]
	if is.data {
		s.Data, s.DataAt = s.Last, at
	}
	if is.everyone {
		s.Everyone = s.Last
	}
	if is.budgets {
		s.Budgets = s.Last
	}
	if is.closes != never && !slices.ContainsFunc(s.Unanswered, func(r Raised) bool { return r.Kind == kind }) {
		s.Unanswered = append(slices.Clone(s.Unanswered), Raised{kind, why})
	}
}

// Look raises the doubts that a look gives rise to.
func (s *State) Look(at time.Time, v storage.View, book budget.Book) {
	is := s.Noticed
	if v.Silent.After(is.Silent) || v.Unavailable != "" && !s.Unheard() {
		s.Raise(at, Silenced, "the storage cluster was silent")
	}
	if v.Silent.After(is.Silent) {
		is.Silent = v.Silent
	}
	if v.Unavailable == "" {
		if v.Unseen > is.Unseen {
			s.Raise(at, Vanished, "a storage daemon has no pod any more")
		}
		is.Unseen = v.Unseen
	}
	if alarms := book.Alarms(); alarms != is.Alarms {
		s.Raise(at, Alarmed, alarms)
		is.Alarms = alarms
	}
	s.Noticed = is
}

// Unheard tells whether nobody knows that all live whom the storage cluster's map calls up.
func (s *State) Unheard() bool { return s.Everyone > s.Heard }

// Hear takes in that everyone lives, as of a doubt.
func (s *State) Hear(asOf Seq) { s.Heard = max(s.Heard, asOf) }

// Answer takes the doubts that nobody has answered, and tells whether the budgets must be closed before anybody looks,
// and why: for the first of them that wants it. applied is what they say; nil: that is not known. number: that of a
// MachineDisruptionBudget lets a Machine go, whatever the budgets of pods say.
func (s *State) Answer(applied *budget.Decision, number bool) (why string, closes bool) {
	for _, r := range s.Unanswered {
		if !closes && mustClose(kinds[r.Kind].closes, applied, number) {
			why, closes = r.Why, true
		}
	}
	s.Unanswered = nil
	return why, closes
}

func mustClose(c closes, applied *budget.Decision, number bool) bool {
	switch c {
	case atRest:
		return number || applied != nil && applied.Mode == budget.ModeDefault
	case unlessClosed:
		return number || applied == nil || applied.Mode != budget.ModeClosed
	case always:
		return true
	default:
		return false
	}
}
