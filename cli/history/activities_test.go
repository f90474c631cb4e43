package history_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
)

// TestEveryActivityThatIsToldOfExists: a record names activities, and so does this package, in switches on `a.name`.
// One that was renamed would no longer be told of, and nobody would miss it.
func TestEveryActivityThatIsToldOfExists(t *testing.T) {
	exist := map[string]bool{}
	for _, all := range []any{
		&activities.Keeper{}, &activities.Drain{}, &activities.OSDs{}, &activities.MonJob{},
		&activities.Fence{}, &activities.ScaleDown{},
	} {
		for method := range reflect.TypeOf(all).Methods() {
			exist[method.Name] = true
		}
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	told := 0
	for _, file := range files {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(syntax, func(n ast.Node) bool {
			s, is := n.(*ast.SwitchStmt)
			if !is {
				return true
			}
			if on, is := s.Tag.(*ast.SelectorExpr); !is || on.Sel.Name != "name" {
				return true
			}
			for _, clause := range s.Body.List {
				for _, x := range clause.(*ast.CaseClause).List {
					name, err := strconv.Unquote(x.(*ast.BasicLit).Value)
					require.NoError(t, err)
					require.True(t, exist[name], "%s tells of the activity %s, and there is none", file, name)
					told++
				}
			}
			return true
		})
	}
	require.Greater(t, told, 20)
}
