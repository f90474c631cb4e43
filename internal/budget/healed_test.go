package budget_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestHealed: the claim is drain/a's on x, for the node a with osd.0. It was granted a minute ago unless told
// otherwise.
func TestHealed(t *testing.T) {
	for _, c := range []struct {
		name, state, want string
		granted           time.Duration
		gone              bool
	}{
		{name: "all is up and clean", want: "healed"},
		{name: "up, PGs heal", state: "touched=x health=unclean", want: "20 of 32 PGs are clean"},
		{
			name: "up, not known", state: "touched=x health=behind",
			want: "the PGs' state is not known yet as of the last change of an OSD",
		},
		{name: "PG health has timed out", state: "touched=x health=unclean healing=60 timeout=60", want: "healed"},
		{name: "still down", state: "osd.0=down/Pending touched=x health=unclean", want: "osd.0 on a is down"},
		{name: "down, and the data does not miss it", state: "osd.0=down/Pending touched=x", want: "osd.0 on a is down"},
		{
			name: "nor after noout has expired", state: "osd.0=down/Pending touched=x", granted: 31 * time.Minute,
			want: "healed",
		},
		{
			name: "another node of the zone is down", state: "osd.1=down/Pending touched=x health=unclean",
			want: "osd.1 on b is down",
		},
		{name: "another zone is down", state: "osd.2=down/Pending touched=x,y health=unclean", want: "healed"},
		{
			name: "both are down", state: "osd.0=down/Pending osd.2=down/Pending touched=x,y health=unclean",
			want: "osd.0 on a is down",
		},
		{
			name: "the node is gone, PGs heal", state: "osd.0=down/Pending touched=x health=unclean", gone: true,
			want: "osd.0 on a is down",
		},
		{name: "the node is gone, PGs have healed", state: "osd.0=down/Pending touched=x", gone: true, want: "healed"},
		{
			name: "an OSD elsewhere has lost the monitors", state: "touched=x disconnected=y health=disconnected",
			want: "healed",
		},
		{
			name: "an OSD elsewhere has, and PGs stand still", state: "touched=x disconnected=y health=unclean",
			want: "20 of 32 PGs are clean",
		},
		{
			name:  "an OSD elsewhere has, and it is not known what PGs do",
			state: "touched=x disconnected=y health=disconnected health=stale",
			want:  "1 of 6 OSDs that are up have no session with a monitor",
		},
		{
			name: "one of its own has", state: "touched=x disconnected=x,y health=disconnected",
			want: "1 of 6 OSDs that are up have no session with a monitor",
		},
		{
			name: "nobody knows which has", state: "touched=x disconnected=unknown health=disconnected",
			want: "1 of 6 OSDs that are up have no session with a monitor",
		},
		{name: "no quorum", state: "unavailable", want: "the storage cluster: no quorum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := atRest()
			for _, word := range strings.Fields(c.state) {
				w.say(word)
			}
			if c.granted == 0 {
				c.granted = time.Minute
			}
			claim := lease.Claim{
				WorkflowID: "drain/a", Domain: zone("x"), Node: "a", FlagHosts: []string{"a"},
				Granted: now.Add(-c.granted), Finishing: true,
			}
			if c.gone {
				claim.FlagHosts = nil
			}
			a := budget.Healed(w.input(), claim)
			if c.want == "healed" {
				require.True(t, a.OK, a.Reason)
				return
			}
			require.False(t, a.OK)
			require.Equal(t, c.want, a.Reason)
		})
	}
}

// TestWhatWasDownBefore: a disk that was dead before the drain began is not what the drain has to wait for.
func TestWhatWasDownBefore(t *testing.T) {
	w := atRest()
	w.say("osd.0=down/NotReady")
	in := w.input()
	c := lease.Claim{WorkflowID: "drain/a", Domain: zone("x"), Node: "a", FlagHosts: []string{"a"}}
	require.Equal(t, []string{"osd.0"}, budget.DownBefore(in, c))
	c.Granted, c.DownBefore = now, budget.DownBefore(in, c)
	require.True(t, budget.Healed(in, c).OK)
	c.Observing = true
	require.Empty(t, budget.DownBefore(in, c), "it may be down because of what is observed")
}

func TestParked(t *testing.T) {
	for _, c := range []struct {
		name, state string
		granted     time.Duration
		want        bool
	}{
		{
			name: "noout has expired, the data is whole without the node", state: "osd.0=down/Pending touched=x",
			granted: 30 * time.Minute, want: true,
		},
		{name: "noout has not expired", state: "osd.0=down/Pending touched=x", granted: 29 * time.Minute},
		{name: "the data is not whole", state: "osd.0=down/Pending touched=x health=unclean", granted: time.Hour},
		{name: "nothing is down", granted: time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := atRest()
			for _, word := range strings.Fields(c.state) {
				w.say(word)
			}
			claim := lease.Claim{
				WorkflowID: "drain/a", Domain: zone("x"), Node: "a", FlagHosts: []string{"a"},
				Granted: now.Add(-c.granted),
			}
			require.Equal(t, c.want, budget.Parked(w.input(), claim))
			claim.Finishing = true
			require.False(t, budget.Parked(w.input(), claim), "one that finishes is released when it is healed")
		})
	}
}

func TestAnnouncements(t *testing.T) {
	w := atRest()
	w.say("cordoned=a")
	in := w.input()
	d := budget.Decide(in)
	require.Equal(t, "a", d.Announcement)
	in.Announced = budget.NextAnnounced(in, d)
	require.Equal(t, budget.Announcement{Node: "a", Opened: now}, in.Announced["a"])
	require.Equal(t, now.Add(time.Minute), budget.NextTimer(in, in.Announced, nil))

	in.Now = now.Add(time.Minute)
	in.Announced = budget.NextAnnounced(in, budget.Decide(in))
	require.True(t, in.Announced["a"].Spent, "its time is over")
	require.Equal(t, budget.ModeDefault, budget.Decide(in).Mode)
	in.Now = now.Add(48 * time.Hour)
	require.Equal(t, budget.ModeDefault, budget.Decide(in).Mode, "a node that is left cordoned blocks nobody")

	back := atRest().input()
	in.View = back.View
	in.Announced = budget.NextAnnounced(in, budget.Decide(in))
	require.Empty(t, in.Announced, "back in service, it may announce itself again")
}

func TestAnnouncementIsSpentWhenItsOSDGoes(t *testing.T) {
	w := atRest()
	for _, word := range strings.Fields("cordoned=a announced=a:5 osd.0=up/Terminating") {
		w.say(word)
	}
	in := w.input()
	require.True(t, budget.NextAnnounced(in, budget.Decide(in))["a"].Spent)
	w.say("unavailable")
	in = w.input()
	require.False(t, budget.NextAnnounced(in, budget.Decide(in))["a"].Spent, "nobody knows who is cordoned")
}

// TestAnnouncementOfSeveralDomains: a cordoned node in several failure domains opens one after the other, each when the
// data is whole without those before, and each has its time.
func TestAnnouncementOfSeveralDomains(t *testing.T) {
	announced := map[string]budget.Announcement{}
	at := now
	for _, c := range []struct {
		down    []int
		unclean bool
		want    []string
	}{
		{want: []string{"0"}},
		{down: []int{0}, unclean: true, want: []string{"0"}},
		{down: []int{0}, want: []string{"1"}},
		{down: []int{0, 1}, unclean: true},
		{down: []int{0, 1}, want: []string{"2"}},
	} {
		in := byOSD("", false, c.down...)
		in.Lease, in.Announced, in.Now = lease.State{}, announced, at
		in.Settings.AtRest, in.Settings.AnnouncementTimeout = storage.AtRestNone, time.Minute
		in.Proof = &storage.CleanProof{ChangeEpoch: 6, Shape: "s"}
		if c.unclean {
			in.Health = storage.Health{ChangeEpoch: 7, Placement: "p"}
			for _, id := range c.down {
				in.View.Domains[id].Touched = true
			}
		}
		d := budget.Decide(in)
		require.Equal(t, c.want, d.Budget.Except, "%v: %s", c.down, d.Message)
		announced = budget.NextAnnounced(in, d)
		require.False(t, announced["a"].Spent, "%v", c.down)
		at = at.Add(50 * time.Second)
	}
	in := byOSD("", false, 0, 1, 2)
	in.Announced, in.Now, in.Health = announced, at, storage.Health{}
	require.True(t, budget.NextAnnounced(in, budget.Decide(in))["a"].Spent, "nothing is left of the node")
}
