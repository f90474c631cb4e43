package monplan

import "strings"

// NameOf is the name of the mon with a number, as Rook counts: a to z, then aa, ab and so on.
func NameOf(number int) string {
	var name strings.Builder
	if number >= 26 {
		name.WriteString(NameOf(number/26 - 1))
	}
	return name.String() + string(rune('a'+number%26))
}

// NumberOf is the reverse of NameOf; ok is false for a name that is not one of these, which mons of others may have.
func NumberOf(name string) (number int, ok bool) {
	const longest = 4
	if name == "" || len(name) > longest {
		return 0, false
	}
	for _, r := range name {
		if r < 'a' || r > 'z' {
			return 0, false
		}
		number = number*26 + int(r-'a') + 1
	}
	return number - 1, true
}
