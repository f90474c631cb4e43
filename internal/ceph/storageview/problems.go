package storageview

import (
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/brief"
)

// A View is small whatever the cluster: so many problems are told, each with so many examples.
const (
	maxProblems = 20
	maxExamples = 5
)

// problems collects what does not fit together, alike ones under one head. The zero value is ready to use.
type problems struct {
	heads    []string
	subjects map[string][]string
}

// add notes a problem: what is wrong, with what. The same subject is noted once.
func (p *problems) add(head, subject string) {
	if p.subjects == nil {
		p.subjects = map[string][]string{}
	}
	if _, seen := p.subjects[head]; !seen {
		p.heads = append(p.heads, head)
		p.subjects[head] = nil
	}
	if last := p.subjects[head]; subject != "" && (len(last) == 0 || last[len(last)-1] != subject) {
		p.subjects[head] = append(last, subject)
	}
}

// list puts the problems in words, in an order that depends on nothing but the problems.
func (p *problems) list() []string {
	var texts []string
	for _, head := range p.heads {
		subjects := p.subjects[head]
		slices.Sort(subjects)
		texts = append(texts, head+brief.List(slices.Compact(subjects), maxExamples))
	}
	slices.Sort(texts)
	if len(texts) > maxProblems {
		more := len(texts) - maxProblems
		texts = append(texts[:maxProblems], fmt.Sprintf("and %d problems more", more))
	}
	return texts
}
