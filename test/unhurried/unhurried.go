// Package unhurried makes the environments in which workflows are tested. Nothing fails in them because a machine has
// much else to do: what hangs for ever is found by the timeout of `go test`, which also says where.
package unhurried

import (
	"time"

	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
)

// Timeout is how long a step of a workflow, and a whole test, may take by the clock on the wall. The SDK gives a step
// 1 s and a test 3 s.
const Timeout = 30 * time.Minute

// Environment is one in which nothing is given up early. Whoever sets other options of its worker sets this timeout as
// well.
func Environment(suite *testsuite.WorkflowTestSuite) *testsuite.TestWorkflowEnvironment {
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(Timeout)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: Timeout})
	return env
}
