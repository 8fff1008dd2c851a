package fields

// A Refusal is why an API server refuses an object.
type Refusal struct {
	Path    []string // to the field: keys of mappings, and indexes of lists
	Message string   // one line: the field and its problem
}

// Refuses is how every command begins the message of a refusal, whether an API server has refused the object, or it was
// found out without one.
const Refuses = "the API server refuses it: "

// RefusalMessages returns the messages of refusals.
func RefusalMessages(refusals []Refusal) []string {
	var messages []string
	for _, refusal := range refusals {
		messages = append(messages, refusal.Message)
	}
	return messages
}
