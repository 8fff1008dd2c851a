package payload

import (
	"bytes"
	"slices"
	"testing"
)

// TestCommentsAreNotManifests asks of each # whether a comment begins there.
func TestCommentsAreNotManifests(t *testing.T) {
	for text, want := range map[string][]bool{
		"# a\nkey: value # b\n":                         {true, true},
		"key: |\n  text # a\n# b\n":                     {false, true},
		"key: \"# a\" # b\n":                            {false, true},
		"\"# a\": b\n":                                  {false},
		"- ['# a', b] # runlevel-mark0;\n":              {false, true},
		"key: &a value # b\nother: *a\n":                {true},
		"key: [ # a\n":                                  {false}, // it can't be read
		"{\"key\": \"# a\"}":                            {false},
		"data:\n  key: >-\n    # a\n    b\n  # c\nx: y": {false, true},
	} {
		var values []int
		for i := 0; ; i++ {
			next := bytes.IndexByte([]byte(text)[i:], '#')
			if next < 0 {
				break
			}
			i += next
			values = append(values, i)
		}
		if got := AreComments([]byte(text), values); !slices.Equal(got, want) {
			t.Errorf("AreComments of %q: got %v, want %v", text, got, want)
		}
	}
}
