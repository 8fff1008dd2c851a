package payload

// A Document is one of a file's documents, whether it is a manifest or not.
type Document struct {
	Number int    // in its file, as Manifest has it
	Text   []byte // as it is written
	Start  int    // where in the file the text begins, in bytes
	Value  any    // that Kubernetes reads; nil if nothing can be read
}

// Documents reads the text of a file as Parse does, but for its templates and images: for
// those who change files, and must know what they change. Documents that hold nothing
// are left out. The error is for a text that can't be cut into documents.
func Documents(text []byte) ([]Document, error) {
	chunks, wrong := split(text)
	if wrong != nil {
		return nil, wrong
	}
	var found []Document
	add := func(c chunk, value any) {
		found = append(found, Document{Number: len(found) + 1, Text: c.text, Start: c.at, Value: value})
	}
	for _, chunk := range chunks {
		documents, err := chunk.decode()
		for _, d := range documents {
			if d.value != nil {
				add(d.text, d.value)
			}
		}
		if err != nil {
			add(chunk, nil)
		}
	}
	return found, nil
}
