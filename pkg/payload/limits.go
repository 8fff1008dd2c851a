package payload

import (
	"context"
	"fmt"
	"sync"

	yaml3 "go.yaml.in/yaml/v3"
	"golang.org/x/sync/semaphore"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// Limits of a release, so that it can't exhaust the time and memory of a command that reads it.
// Real releases are far below them. The largest document known has 0.5 MB and 7,000 values, and
// OpenShift's releases have about 900 manifests.
const (
	maxFile     = 32 << 20 // bytes of a file, rendered and with its images
	maxDocument = 4 << 20  // bytes of a document; an API server takes objects of 1.5 MB
	maxWritten  = 8 << 20  // bytes of a document, with its aliases written out and indented
	maxValues   = 250_000  // values of a document: mappings, their keys, lists, texts and numbers
	maxDepth    = 200      // levels of nested values; the deepest known is 28

	maxDocuments   = 20_000    // documents of a release, including empty ones
	maxReleaseText = 24 << 20  // bytes of a release, rendered and written out
	maxReleaseSize = 1_000_000 // values of a release

	maxProblems = 10_000 // listed problems of a release

	// marksPerValue is the maximum number of separators for each value that a document may have. Separators are
	// counted before the document is parsed, since the parser needs 200 bytes for each value. Some separators in texts
	// separate no values.
	marksPerValue = 2
)

// isMark is 1 for bytes that may precede a value in YAML or JSON: indicators, and the
// last bytes of line breaks. There are at most two values for each, a mapping and its key.
var isMark = func() (marks [256]uint8) {
	for _, c := range []byte(",:[{?-\n\r\x85\xa8\xa9") {
		marks[c] = 1
	}
	return marks
}()

func countMarks(text []byte) int {
	count := 0
	for _, c := range text {
		count += int(isMark[c])
	}
	return count
}

// checkText returns an error if the text of a document is over the limits.
func checkText(text []byte, marks int) error {
	switch {
	case len(text) > maxDocument:
		return &yamltext.TextError{Message: fmt.Sprintf("it has %d bytes, and the limit for a document is 4 MiB: no "+
			"API server takes an object of that size", len(text))}
	case marks > maxValues*marksPerValue:
		return &yamltext.TextError{Message: fmt.Sprintf(`it has %d characters that separate values, such as "," and ":" and line breaks, and the limit for a document is %d`, marks, maxValues*marksPerValue)}
	default:
		return nil
	}
}

// errDocuments is the error of a file that has more documents than a release may have.
var errDocuments = &yamltext.TextError{
	Message: fmt.Sprintf("it has more than %d documents, which is the limit for a release", maxDocuments),
}

// A size is the size of a value with its aliases expanded.
type size struct {
	values, bytes, depth int
}

// add adds the size of an inner value, with each line indented by two.
func (s *size) add(inside size) error {
	s.values += inside.values
	s.bytes += inside.bytes + 2*inside.values
	s.depth = max(s.depth, inside.depth+1)
	return s.check()
}

func (s *size) check() error {
	switch {
	case s.values > maxValues:
		return &yamltext.TextError{Message: fmt.Sprintf("it has more than %d values, which is the limit for a "+
			"document (an alias counts as what it stands for)", maxValues)}
	case s.bytes > maxWritten:
		return &yamltext.TextError{Message: "written out it has more than 8 MiB, which is the limit for a document " +
			"(an alias counts as what it stands for)"}
	case s.depth > maxDepth:
		return &yamltext.TextError{
			Message: fmt.Sprintf("its values are nested more than %d levels deep, which is the limit", maxDepth),
		}
	default:
		return nil
	}
}

// A sizer measures nodes of yaml/v3.
type sizer map[*yaml3.Node]size // sizes of nodes with anchors

// measure returns the size of a node. An alias inside of its own anchor counts nothing:
// the decoder refuses it.
func (s sizer) measure(node *yaml3.Node) (size, error) {
	if node.Kind == yaml3.AliasNode {
		return s[node.Alias], nil
	}
	whole := size{values: 1, bytes: len(node.Value) + 1}
	for _, child := range node.Content {
		inside, err := s.measure(child)
		if err != nil {
			return size{}, err
		}
		if err := whole.add(inside); err != nil {
			return size{}, &yamltext.TextError{Line: node.Line, Message: err.Error()}
		}
	}
	if node.Anchor != "" {
		s[node] = whole
		whole.values++ // an anchor costs as much as a value
	}
	return whole, whole.check()
}

// measureValue returns the size of a value that was read from JSON.
func measureValue(value any) (size, error) {
	whole := size{values: 1, bytes: 1}
	add := func(value any) error {
		inside, err := measureValue(value)
		if err != nil {
			return err
		}
		return whole.add(inside)
	}
	switch value := value.(type) {
	case string:
		whole.bytes += len(value)
	case []any:
		if err := each(value, add); err != nil {
			return whole, err
		}
	case map[string]any:
		for key, item := range value {
			if err := whole.add(size{values: 1, bytes: len(key) + 1}); err != nil {
				return whole, err
			}
			if err := add(item); err != nil {
				return whole, err
			}
		}
	}
	return whole, whole.check()
}

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

// A cost is the part of the budget that a file takes.
type cost struct{ documents, bytes, marks, values int }

// costOf returns the cost of a text before its documents are parsed: one document for each chunk.
func costOf(text []byte, chunks []chunk) cost {
	c := cost{documents: len(chunks), bytes: len(text)}
	for _, chunk := range chunks {
		if chunk.marks <= maxValues*marksPerValue { // a larger chunk is refused by itself
			c.marks += chunk.marks
		}
	}
	return c
}

// cost returns the cost of a document beyond its text, by its index in its chunk.
func (d *decodedDocument) cost(index int) cost {
	return cost{documents: min(index, 1), bytes: max(0, d.size.bytes-len(d.text.text)), values: d.size.values}
}

// take adds a cost to the used budget, and reports whether the release is within the limits.
func (b *budget) take(c cost) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used.documents += c.documents
	b.used.bytes += c.bytes
	b.used.marks += c.marks
	b.used.values += c.values
	return b.exceededLimit() == ""
}

// exceededLimit returns a limit that the release exceeds; "" if there is none.
func (b *budget) exceededLimit() string {
	switch {
	case b.used.documents > maxDocuments:
		return fmt.Sprintf("%d documents", maxDocuments)
	case b.used.bytes > maxReleaseText:
		return "24 MiB when they are rendered and their aliases are written out"
	case b.used.marks > maxReleaseSize*marksPerValue:
		return fmt.Sprintf(`%d characters that separate values, such as "," and ":" and line breaks`,
			maxReleaseSize*marksPerValue)
	case b.used.values > maxReleaseSize:
		return fmt.Sprintf("%d values", maxReleaseSize)
	default:
		return ""
	}
}

// decode reads the documents of a chunk. Large ones are read one after the other, since the
// parser needs a multiple of their size.
func (b *budget) decode(ctx context.Context, c chunk) ([]decodedDocument, error) {
	weight := min(int64(c.marks), maxValues*marksPerValue)
	if err := b.parsing.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	defer b.parsing.Release(weight)
	return c.decode()
}
