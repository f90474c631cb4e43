package starter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

var wishTime = time.Unix(1_800_000_000, 0)

func wanted(daemon string, refused bool) kube.StorageWish {
	w := kube.StorageWish{Daemon: daemon, Wish: wish.Wish{Pod: daemon, UID: types.UID("uid of " + daemon), Newer: true}}
	if refused {
		w.Since = wishTime
	}
	return w
}

func TestDecideWishes(t *testing.T) {
	const approve, observe = v1alpha1.RestartsApprove, v1alpha1.RestartsObserve
	some := []kube.StorageWish{wanted("osd.1", true), wanted("mon.a", true), wanted("osd.0", true)}
	for name, c := range map[string]struct {
		before, now []kube.StorageWish
		modes       [2]v1alpha1.RestartMode
		open        string
		windows     string
		gone        bool
		after       time.Duration
		want        WishNews
	}{
		"nothing":         {modes: [2]v1alpha1.RestartMode{approve, approve}},
		"some are wanted": {now: some, want: WishNews{"mon.a, osd.0, osd.1 is to go", true}},
		"only looked at": {
			now: some, modes: [2]v1alpha1.RestartMode{observe, observe},
			want: WishNews{"mon.a, osd.0, osd.1 is to go", false},
		},
		"the same again": {before: some, now: some},
		"one more": {before: some, now: append(some[:3:3], wanted("osd.7", true)), want: WishNews{
			"osd.7 is to go",
			true,
		}},
		"one taken back":  {before: some, now: some[:2], want: WishNews{"osd.0 is not to go any more", false}},
		"one went":        {before: some, now: some[:2], gone: true},
		"the last went":   {before: some, gone: true, want: WishNews{"nothing waits any more", false}},
		"not refused yet": {now: []kube.StorageWish{wanted("osd.0", false)}},
		"for a while": {
			now: []kube.StorageWish{wanted("osd.0", false)}, after: unrefusedFor,
			want: WishNews{"osd.0 is to go", true},
		},
		"open anyway":     {before: some, now: some, open: "zone-x", want: WishNews{"zone-x is open", false}},
		"open, for what?": {open: "zone-x"},
		"other windows": {
			before: some, now: some, windows: "at night", want: WishNews{"the windows are others now", false},
		},
		"windows for what?": {windows: "at night"},
		"asked to act": {
			before: some, now: some, modes: [2]v1alpha1.RestartMode{observe, approve},
			want: WishNews{"restarts is Approve now", true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told *WishSnapshot
			for i := range c.modes {
				if c.modes[i] == "" {
					c.modes[i] = approve
				}
			}
			if c.before != nil {
				s := TakeWishes(WishRules{Mode: c.modes[0]}, c.before, nil, wishTime).counting(wishTime)
				told = &s
			}
			rules := WishRules{Mode: c.modes[1], Windows: c.windows, Open: c.open}
			seen := TakeWishes(rules, c.now, told, wishTime)
			again := TakeWishes(rules, c.now, &seen, wishTime.Add(c.after))
			counting := again.counting(wishTime.Add(c.after))
			news := DecideWishes(told, counting, func(types.UID) bool { return c.gone })
			require.Equal(t, c.want, news)
			require.Equal(t, WishNews{}, DecideWishes(&counting, counting, func(types.UID) bool { return false }), "once")
		})
	}
}

// TestNoWishIsForgotten: whatever comes and goes between two looks, each pod that is wanted gone for long enough has
// been told of, and the last one that is taken back, too.
func TestNoWishIsForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var seen, told *WishSnapshot
		knows := map[types.UID]bool{} // what the job was told of
		now := wishTime
		for range rapid.IntRange(1, 20).Draw(t, "looks") {
			var are []kube.StorageWish
			for _, d := range []string{"osd.0", "osd.1", "mon.a"} {
				if rapid.Bool().Draw(t, d) {
					are = append(are, wanted(d, rapid.Bool().Draw(t, "refused")))
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 300).Draw(t, "ms")) * time.Millisecond)
			s := TakeWishes(WishRules{Mode: v1alpha1.RestartsAutomatic}, are, seen, now)
			counting := s.counting(now)
			news := DecideWishes(told, counting, func(types.UID) bool { return false })
			if news.Reason != "" { // the job looks
				clear(knows)
				for uid := range counting.Wishes {
					knows[uid] = true
				}
			}
			for uid := range counting.Wishes {
				require.True(t, knows[uid], "%s waits, and the job was not told", uid)
			}
			require.False(t, len(counting.Wishes) == 0 && len(knows) > 0, "nothing waits, and the job was not told")
			require.Equal(t, len(s.Wishes) > len(counting.Wishes), s.lookAgain(now) > 0)
			seen, told = &s, &counting
		}
	})
}
