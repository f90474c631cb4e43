package workflows

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/lease"
)

const (
	ask, nextAsk = 10, 20
	run          = "the job's first run"
)

// claimIn is a claim in a stage, with or without one that follows it.
func claimIn(stage claimStage, next bool) ClaimState {
	c := ClaimState{Stage: stage, Claim: lease.Claim{RunID: run, Ask: ask}}
	if c.held() || c.finished() {
		c.Token = 1
	}
	if next {
		c.Next = &lease.Claim{RunID: run, Ask: nextAsk}
	}
	return c
}

// TestEveryWordInEveryStage: what each word of the keeper makes of a claim, by its stage, and which claim it is then
// about.
func TestEveryWordInEveryStage(t *testing.T) {
	t.Parallel()
	words := []LeaseState{
		LeaseReserved, LeaseWaiting, LeaseGranted, LeaseHealing, LeaseReleased, LeaseParked, LeaseRevoked,
	}
	free := func(reserved, c claimStage) [7]claimStage {
		return [7]claimStage{reserved, c, claimHeld, c, claimFree, claimFree, claimFree}
	}
	for stage, becomes := range map[claimStage][7]claimStage{
		claimFree:     {},
		claimAsked:    free(claimReserved, claimAsked),
		claimUnsure:   {claimReserved, claimAsked, claimHeld, claimUnsure, claimFree, claimFree, claimFree},
		claimReserved: free(claimReserved, claimReserved),
		claimHeld:     free(claimHeld, claimHeld), // that it is in reserve was said before
		// a grant that came late is of no use any more
		claimDone: {claimDone, claimDone, claimDone, claimDone, claimFree, claimFree, claimFree},
		claimTold: {claimTold, claimTold, claimTold, claimTold, claimFree, claimFree, claimFree},
	} {
		for i, word := range words {
			t.Run(fmt.Sprintf("%s/%s", stage, word), func(t *testing.T) {
				t.Parallel()
				c := claimIn(stage, false)
				about := c.take(LeaseNotice{State: word, RunID: run, Ask: ask, Token: 7, WaitsFor: "a reason"})
				assert.Equal(t, stage != claimFree, about)
				assert.Equal(t, becomes[i], c.Stage)
				if c.Stage == claimHeld && word == LeaseGranted {
					assert.EqualValues(t, 7, c.Token)
				}
				if stage != claimFree && c.Stage == claimFree {
					assert.Equal(t, word, c.Ended)
					assert.Zero(t, c.Token)
				}
			})
		}
	}
}

// TestTheNextClaim: what follows a claim becomes the claim when the keeper speaks of it, and when it ends the claim
// before.
func TestTheNextClaim(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		word  LeaseState
		of    int64
		stage claimStage
		ask   int64
	}{
		{LeaseHealing, ask, claimTold, ask},
		{LeaseReleased, ask, claimUnsure, nextAsk},
		{LeaseParked, ask, claimUnsure, nextAsk},
		{LeaseRevoked, ask, claimUnsure, nextAsk},
		{LeaseWaiting, nextAsk, claimAsked, nextAsk},
		{LeaseGranted, nextAsk, claimHeld, nextAsk},
		{LeaseRevoked, nextAsk, claimFree, nextAsk},
	} {
		c := claimIn(claimTold, true)
		require.True(t, c.take(LeaseNotice{State: x.word, RunID: run, Ask: x.of, Token: 7}))
		assert.Equal(t, x.stage, c.Stage, x)
		assert.Equal(t, x.ask, c.Claim.Ask, x)
		assert.Equal(t, c.Claim.Ask == ask, c.Next != nil, x)
	}
}

// TestWordsOfOthers: what is said of the claim before, of another run, or of one that was never made, is nothing.
func TestWordsOfOthers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		stage := rapid.SampledFrom([]claimStage{
			claimFree, claimAsked, claimUnsure, claimReserved, claimHeld, claimDone, claimTold,
		}).Draw(t, "stage")
		c := claimIn(stage, rapid.Bool().Draw(t, "next") && (stage == claimDone || stage == claimTold))
		n := LeaseNotice{
			State: rapid.SampledFrom([]LeaseState{
				LeaseWaiting, LeaseReserved, LeaseGranted, LeaseHealing, LeaseReleased, LeaseParked, LeaseRevoked,
			}).Draw(t, "word"),
			RunID: rapid.SampledFrom([]string{run, "another"}).Draw(t, "run"),
			Ask:   rapid.SampledFrom([]int64{0, ask - 1, ask, nextAsk, nextAsk + 1}).Draw(t, "ask"), Token: 7,
		}
		ours := n.RunID == run && (n.Ask == ask || c.Next != nil && n.Ask == nextAsk) && stage != claimFree
		before := c
		if about := c.take(n); about != ours {
			t.Fatalf("%+v about %+v: %t", n, before, about)
		}
		if !ours && c.Stage != before.Stage || !ours && c.Token != before.Token {
			t.Fatalf("%+v changed %+v to %+v", n, before, c)
		}
		// A token is what an activity shows: there is one exactly as long as the lease was granted and is not back.
		if has := c.Token != 0; has != (c.held() || c.finished()) {
			t.Fatalf("%+v made of %+v: %+v", n, before, c)
		}
	})
}
