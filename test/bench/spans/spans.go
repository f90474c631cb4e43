// Package spans adds up times that overlap.
package spans

import "time"

// Span is a time from one moment to another.
type Span struct{ From, To time.Time }

// Length of spans that do not overlap.
func Length(spans []Span) (d time.Duration) {
	for _, s := range spans {
		d += s.To.Sub(s.From)
	}
	return d
}

// Without is what is left of spans when others are taken out.
func Without(spans, others []Span) []Span {
	for _, o := range others {
		var left []Span
		for _, s := range spans {
			if !o.To.After(s.From) || !o.From.Before(s.To) {
				left = append(left, s)
				continue
			}
			if s.From.Before(o.From) {
				left = append(left, Span{s.From, o.From})
			}
			if o.To.Before(s.To) {
				left = append(left, Span{o.To, s.To})
			}
		}
		spans = left
	}
	return spans
}
