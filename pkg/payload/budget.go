package payload

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// A budget counts documents, bytes, separators and values against the limits of a release, whose files are read
// in parallel.
type budget struct {
	mu   sync.Mutex
	used cost

	parsing *semaphore.Weighted // the separators of documents that are parsed at the same time
}

func newBudget() *budget {
	return &budget{parsing: semaphore.NewWeighted(maxValues * marksPerValue)}
}

// A cost is what a file takes of the budget.
type cost struct{ documents, bytes, marks, values int }

// costOf is the cost of a text before its documents are parsed: one for each chunk.
func costOf(text []byte, chunks []chunk) cost {
	c := cost{documents: len(chunks), bytes: len(text)}
	for _, chunk := range chunks {
		if chunk.marks <= maxValues*marksPerValue { // else it is refused alone
			c.marks += chunk.marks
		}
	}
	return c
}

// cost is what a document costs beyond its text, as the one with this index in its chunk.
func (d *decoded) cost(index int) cost {
	return cost{documents: min(index, 1), bytes: max(0, d.size.bytes-len(d.text.text)), values: d.size.values}
}

// take takes a cost out of the budget, and reports whether the release is within it.
func (b *budget) take(c cost) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used.documents += c.documents
	b.used.bytes += c.bytes
	b.used.marks += c.marks
	b.used.values += c.values
	return b.exceeded() == ""
}

// exceeded returns the limit that a release is over; "" if there is none.
func (b *budget) exceeded() string {
	switch {
	case b.used.documents > maxDocuments:
		return fmt.Sprintf("%d documents", maxDocuments)
	case b.used.bytes > maxReleaseText:
		return "24 MiB when they are rendered and their aliases are written out"
	case b.used.marks > maxReleaseSize*marksPerValue:
		return fmt.Sprintf(`%d characters that separate values, such as "," and ":" and line breaks`, maxReleaseSize*marksPerValue)
	case b.used.values > maxReleaseSize:
		return fmt.Sprintf("%d values", maxReleaseSize)
	default:
		return ""
	}
}

// decode reads the documents of a chunk. Large ones are read one after the other, since the
// parser needs a multiple of their size.
func (b *budget) decode(ctx context.Context, c chunk) ([]decoded, error) {
	weight := min(int64(c.marks), maxValues*marksPerValue)
	if err := b.parsing.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	defer b.parsing.Release(weight)
	return c.decode()
}
