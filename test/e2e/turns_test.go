package e2e

import "math"

// How many commits it takes, on average, until something that takes long has had its turn.
const (
	often  = 6
	seldom = 10
	// never: only when all is played, since it needs a release of Ceph that is downloaded.
	never = math.MaxUint32
)
