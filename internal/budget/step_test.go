package budget_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// TestCloseFirstBeforeAnythingIsDecided: mons have a closed budget then, or whoever closes would delete that of the
// keeper before. Of a policy by which they have none they get none.
func TestCloseFirstBeforeAnythingIsDecided(t *testing.T) {
	everything := &budget.Spec{MinAvailable: budget.Everything}
	assert.Equal(t, everything, budget.CloseFirst(budget.Decision{}, "").Mons)
	decided := budget.Decision{Reason: budget.ReasonClean}
	assert.Nil(t, budget.CloseFirst(decided, "").Mons)
	decided.Mons = &budget.Spec{MinAvailable: 2}
	assert.Equal(t, everything, budget.CloseFirst(decided, "").Mons)
}
