package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	in := `== unit tests
{"Action":"run","Package":"m/internal/x","Test":"TestFast"}
{"Action":"output","Package":"m/internal/x","Test":"TestFast","Output":"never to be seen\n"}
{"Action":"pass","Package":"m/internal/x","Test":"TestFast","Elapsed":0.2}
{"Action":"output","Package":"m/e2e","Test":"TestScenarios/drain","Output":"        # the node is drained (12.500s)\n"}
{"Action":"output","Package":"m/e2e","Test":"TestScenarios/drain","Output":"        it failed\n"}
{"Action":"fail","Package":"m/e2e","Test":"TestScenarios/drain","Elapsed":14.5}
{"Action":"pass","Package":"m/internal/x","Elapsed":1.5}
{not JSON}
== unit tests: FAILED (2) after 17 s
`
	var out strings.Builder
	require.NoError(t, report(strings.NewReader(in), &out))
	require.Equal(t, `== unit tests
        # the node is drained (12.500s)
        it failed
{not JSON}
== unit tests: FAILED (2) after 17 s
stage 17 s  unit tests
package 1.5 s  m/internal/x
package 0.0 s  all others, of 1
test 14.5 s  e2e TestScenarios/drain
test 0.2 s  all others, of 2
step 12.5 s  TestScenarios/drain: the node is drained
step 0.0 s  all others, of 1
`, out.String())
}
