package draw

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A State is the state of a node in a run.
type State struct {
	Tone        Tone
	Word        string // such as "waiting"
	Done, Total int    // manifests
}

const (
	// MaxUnfolded is the number of nodes up to which a picture of a run has them all.
	MaxUnfolded = 40
	// maxBoxes limits the boxes of a picture of a run: browsers are slow with thousands.
	maxBoxes = 200
)

// A band is boxes of one level that may run in parallel, or a Job.
type band struct {
	rank  int
	boxes []box
	// folded are boxes that are drawn as one: a band without other boxes is a bar.
	folded []box
}

// bands returns the boxes of a picture from top to bottom. Those of a run are folded if there are many.
func (p Picture) bands() []band {
	var bands []band
	count := 0
	for i, boxes := range p.ranks() {
		count += len(boxes)
		for len(boxes) > 0 {
			end := 1
			for end < len(boxes) && !boxes[0].isBarrier && !boxes[end].isBarrier &&
				boxes[end].level() == boxes[0].level() {
				end++
			}
			bands = append(bands, band{rank: i, boxes: boxes[:end]})
			boxes = boxes[end:]
		}
	}
	if p.States == nil || count <= MaxUnfolded {
		return bands
	}
	if !p.Unfolded {
		p.foldUniform(bands)
	}
	p.foldRest(bands)
	return p.join(bands)
}

// foldUniform folds bands that are done, and bands whose turn comes later, except the next one.
func (p Picture) foldUniform(bands []band) {
	for i, tone := 0, Tone(""); i < len(bands); i++ {
		before := tone
		tone = p.toneOf(bands[i].boxes)
		if tone == Good || tone == Later && before == Later {
			bands[i].folded, bands[i].boxes = bands[i].boxes, nil
		}
	}
}

// toneOf returns the tone that all boxes have; "" if there are several.
func (p Picture) toneOf(boxes []box) Tone {
	tone := p.States[boxes[0].node].Tone
	for _, b := range boxes {
		if p.States[b.node].Tone != tone {
			return ""
		}
	}
	return tone
}

// urgency orders tones: what an operator needs to see comes first.
var urgency = []Tone{Bad, Waiting, Active, Unknown, Later, Good}

// CompareUrgency orders tones, the most urgent first.
func CompareUrgency(a, b Tone) int {
	return cmp.Compare(slices.Index(urgency, a), slices.Index(urgency, b))
}

// foldRest folds the boxes beyond the limit, in each band the least urgent ones.
func (p Picture) foldRest(bands []band) {
	var all []box
	for _, band := range bands {
		all = append(all, band.boxes...)
	}
	if len(all) <= maxBoxes {
		return
	}
	slices.SortStableFunc(all, func(a, b box) int {
		return CompareUrgency(p.States[a.node].Tone, p.States[b.node].Tone)
	})
	kept := map[int]bool{}
	for _, b := range all[:maxBoxes] {
		kept[b.node] = true
	}
	for i := range bands {
		var boxes []box
		for _, b := range bands[i].boxes {
			if kept[b.node] {
				boxes = append(boxes, b)
			} else {
				bands[i].folded = append(bands[i].folded, b)
			}
		}
		bands[i].boxes = boxes
	}
}

// join makes one bar of folded bands that follow each other: of those in the same state, or of all if there are many.
func (p Picture) join(bands []band) []band {
	var joined []band
	for _, next := range bands {
		if last := len(joined) - 1; last >= 0 && len(joined[last].boxes) == 0 && len(next.boxes) == 0 &&
			(p.toneOf(joined[last].folded) == p.toneOf(next.folded) || len(joined) > maxBoxes) {
			joined[last].folded = append(joined[last].folded, next.folded...)
			continue
		}
		joined = append(joined, next)
	}
	return joined
}

// levelsOf returns the first and the last level of boxes.
func levelsOf(boxes []box) string {
	first, last := boxes[0].levels, boxes[len(boxes)-1].levels
	return box{levels: slices.Compact(slices.Concat(first, last))}.level()
}

// summary describes folded boxes: "812 manifests, done".
func (p Picture) summary(boxes []box) string {
	manifests, counts, words := 0, map[string]int{}, []string(nil)
	for _, b := range boxes {
		word := p.States[b.node].Word
		if counts[word] == 0 {
			words = append(words, word)
		}
		counts[word] += len(b.tasks)
		manifests += len(b.tasks)
	}
	if len(words) == 1 {
		return printable.Count(manifests, "manifest") + ", " + words[0]
	}
	for i, word := range words {
		words[i] = fmt.Sprintf("%d %s", counts[word], word)
	}
	return printable.Count(manifests, "manifest") + ": " + strings.Join(words, ", ")
}
