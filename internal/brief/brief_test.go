package brief_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/brief"
)

func TestList(t *testing.T) {
	for want, most := range map[string]int{"a and 2 more": 1, "a, b and 1 more": 2, "a, b, c": 3} {
		require.Equal(t, want, brief.List([]string{"a", "b", "c"}, most))
	}
	require.Empty(t, brief.List(nil, 3))
}
