package frame

import "fmt"

// Language is what a peer is written in. Nothing depends on it.
type Language uint8

// Languages that this package names itself; the others are in languages.
const (
	Java  Language = 0
	Other Language = 7
	Go    Language = 9
)

// languages are RocketMQ's names by number.
var languages = [...]string{"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"}

// String returns the name, as in JSON headers.
func (l Language) String() string {
	if int(l) < len(languages) {
		return languages[l]
	}
	return fmt.Sprintf("language %d", uint8(l))
}

// languageOf returns the language of a name; one that is unknown is Other.
func languageOf(name string) Language {
	for i, n := range languages {
		if n == name {
			return Language(i) //nolint:gosec // there are few
		}
	}
	return Other
}
