package lint

// secretRules are about certificates and Secrets that an API server accepts, and that do not work.
func secretRules() []Rule {
	return nil
}
