package workflows

import (
	"cmp"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what the keeper knows of who lives, and what it has to ask. A storage daemon that hangs is up in the
// storage cluster's map, and the data is whole by its last word, so before anything opens every daemon elsewhere has to
// report once more.

// lifeLasts is how long after the answer something may open because of it: a pass that closes and one that opens, when
// requests are slow. It is of no use to another opening.
const lifeLasts = 10 * time.Second

// commitAgainAfter is when a look begins with a commit again after one was not answered.
const commitAgainAfter = 30 * time.Second

// question is whether everybody outside a failure domain lives. It asks, goes on with what it asked, or stops asking.
type question struct {
	asks, goesOn bool
	outside      storage.FailureDomain
}

// wonder adds to the input what is known of who lives, and says what has to be asked: if something is to open, and
// nothing is known.
func (m *mind) wonder(now time.Time, in *guard.Input) (q question) {
	defer func() { in.Life = m.state.Life }()
	if in.View.Unavailable != "" {
		m.state.Lived, m.state.Life = time.Time{}, m.silence() // what follows begins anew anyway
		return question{}
	}
	d, wanted := m.guard().Question(*in)
	silent := m.silence() != nil
	switch {
	case !wanted && !silent:
		m.state.Life = nil
		return question{}
	case !wanted: // until they report, or the storage cluster calls them down
		return question{asks: true, outside: m.state.Life.Outside}
	case m.lives().Covers(d) && now.Sub(m.state.Answered) <= lifeLasts:
		return question{goesOn: true}
	case m.state.LivedAsOf >= m.state.Doubts.Data && now.Sub(m.state.Lived) <= m.state.LivedFor:
		m.state.Life, m.state.Answered, m.state.LifeAsOf = &storage.Life{Outside: d}, now, m.state.LivedAsOf
		return question{}
	}
	if !silent {
		m.state.Life = nil
	}
	return question{asks: true, outside: d}
}

// lived takes in the answer to a question who lives, as of a doubt.
func (m *mind) lived(a activities.LifeAnswer, asOf doubt.Seq) {
	m.state.Life, m.state.Answered, m.state.LifeAsOf = &a.Life, a.At, asOf
}

// noteLived takes in that the proof of whole data is one of life, too. It counts for as long as it takes until the next
// report of the same daemon is heard of: what opens right afterwards needs no question of its own.
func (m *mind) noteLived(w activities.Watched, asOf doubt.Seq) {
	if w.ReportPeriod > 0 && w.Health.Fresh {
		m.state.ReportPeriod = w.ReportPeriod
		m.state.Lived, m.state.LivedFor = w.At.Add(-w.Lived), cmp.Or(w.LivedFor, w.ReportPeriod+w.ReportPeriod/4)
		m.state.LivedAsOf = asOf
	}
}

// lives is the last answer to the question who lives, if it counts: who lived before a doubt about the data may be what
// the doubt is about.
func (m *mind) lives() *storage.Life {
	if m.state.LifeAsOf < m.state.Doubts.Data {
		return m.silence()
	}
	return m.state.Life
}

// mustCommit tells whether to look once more at once, after a commit, since somebody may go because of it. Where there
// was no answer to one there will be none right afterwards.
func (m *mind) mustCommit() bool { return m.commits && m.verdict.Commit && !m.askedCommit }

// commitAgain is when to try a commit again that failed; the zero time: none did. When they have elected anew
// the watch tells so earlier.
func (m *mind) commitAgain(now time.Time) time.Time {
	if !m.commits || !m.verdict.Commit || !m.askedCommit || m.observed.Seen.View.Committed {
		return time.Time{}
	}
	return now.Add(commitAgainAfter)
}

// silence is the last answer, if it names somebody who is silent. That holds until he gives a sign of life, whatever
// else happened meanwhile; nil otherwise.
func (m *mind) silence() *storage.Life {
	if m.state.Life == nil || m.state.Life.Silent == 0 {
		return nil
	}
	return m.state.Life
}
