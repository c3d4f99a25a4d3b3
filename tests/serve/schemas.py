"""Random JSON Schemas, the same for the same seed, of what grammar.xgrammar takes: see its README."""
import random

NAMES = ["a", "b", "id", "name", "tags", "x y", "größe", "kind", "v1", "next"]
PATTERNS = ["^[a-z]{1,6}$", "^[A-Z][a-z]{0,4}$", "^\\d{3}-\\d{2}$", "^(ab|cd|e)+f$", "^.{0,4}$", "^[^0-9]{2,5}$",
            "^\\w{1,3}\\s\\w{1,3}$", "^(|x{2})$", "[0-9a-f]{4}", "^[^\"]{1,3}$", "^\\S{1,4}$"]
WORDS = ["", "red", "green", "blue", "two words", "quo\"te", "back\\slash", "tab\there", "ünïcödé", "日本", "</s>", "a/b"]


class Schemas:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.defs = {}

    def make(self):
        """Makes an object with everything that it needs."""
        self.defs = {}
        schema = self.object(0) if self.random.random() < 0.8 else self.any(0)
        if self.defs:
            schema = dict(schema, **{"$defs": self.defs})
        return schema

    def any(self, depth):
        r = self.random
        simple = [self.string, self.integer, self.number, self.enum, self.const, self.boolean, self.null]
        nested = [self.object, self.array, self.any_of, self.reference, self.recursive, self.types, self.map]
        kind = r.choice(simple if depth >= 3 or r.random() < 0.5 else nested)
        schema = kind(depth + 1)
        if r.random() < 0.1:
            schema = dict(schema, title="t", description="says nothing", default=None)
        return schema

    def string(self, _=0):
        r = self.random
        kind = r.randrange(6)
        if kind == 0:
            return {"type": "string", "pattern": r.choice(PATTERNS)}
        if kind == 1:
            return {"type": "string", "format": r.choice(["date", "time", "date-time", "uuid", "ipv4"])}
        if kind == 2:
            return {"type": "string", "minLength": r.randrange(3), "maxLength": r.randrange(3, 12)}
        if kind == 3:
            return {"type": "string", "minLength": r.randrange(1, 5)}
        if kind == 4:
            return {"type": "string", "maxLength": r.randrange(8)}
        return {"type": "string"}

    def integer(self, _=0):
        r = self.random
        schema = {"type": "integer"}
        low = r.choice([None, -1000000, -17, 0, 5, 99])
        high = r.choice([None, 100, 117, 65535, 10**12])
        if low is not None:
            schema[r.choice(["minimum", "exclusiveMinimum"])] = low
        if high is not None:
            schema[r.choice(["maximum", "exclusiveMaximum"])] = high
        if len(schema) == 1 and r.random() < 0.3:
            schema["multipleOf"] = r.choice([2, 5, 7, 10])
        return schema

    def number(self, _=0):
        r = self.random
        schema = {"type": "number"}
        low, high = r.choice([None, -2.5, 0, 0.125, -1000]), r.choice([None, 0.5, 10, 3.75, 100000])
        if low is not None:
            schema[r.choice(["minimum", "exclusiveMinimum"])] = low
        if high is not None:
            schema[r.choice(["maximum", "exclusiveMaximum"])] = high
        return schema

    def enum(self, _=0):
        r = self.random
        values = [*r.sample(WORDS, 3), r.randrange(100), None, True, 1.5, {"a": [1, {}]}]
        return {"enum": r.sample(values, r.randrange(1, len(values)))}

    def const(self, _=0):
        return {"const": self.random.choice([1, -2.5, "c", WORDS[5], None, False, [1, "two"], {"k": {"l": 1}}])}

    def boolean(self, _=0):
        return {"type": "boolean"}

    def null(self, _=0):
        return {"type": "null"}

    def array(self, depth):
        r = self.random
        schema = {"type": "array"}
        if r.random() < 0.3:
            schema["prefixItems"] = [self.any(depth) for _ in range(r.randrange(1, 3))]
            schema["items"] = r.choice([False, self.any(depth)])
            schema["minItems"] = len(schema["prefixItems"])
            if schema["items"]:
                schema["maxItems"] = schema["minItems"] + r.randrange(3)
            return schema
        schema["items"] = self.any(depth)
        schema["maxItems"] = r.randrange(1, 4)
        schema["minItems"] = r.randrange(schema["maxItems"] + 1)
        return schema

    def object(self, depth):
        r = self.random
        names = r.sample(NAMES, r.randrange(1, 5))
        schema = {"type": "object", "properties": {name: self.any(depth) for name in names}}
        required = [name for name in names if r.random() < 0.5]
        if required:
            schema["required"] = required
        more = r.randrange(6)
        if more == 0:
            schema["additionalProperties"] = self.boolean()
            schema["maxProperties"] = len(names) + r.randrange(2)
        elif more == 1:
            schema["additionalProperties"] = False
            schema["minProperties"] = r.randrange(len(names) + 1)
        elif more == 2:
            schema["additionalProperties"] = False
        return schema

    def map(self, depth):
        r = self.random
        if r.random() < 0.5:
            return {"type": "object", "patternProperties": {r.choice(PATTERNS[:4]): self.any(depth)}, "maxProperties": 3}
        return {"type": "object", "additionalProperties": self.any(depth), "maxProperties": r.randrange(1, 4)}

    def any_of(self, depth):
        options = [self.any(depth) for _ in range(self.random.randrange(2, 4))]
        return {"anyOf": options}

    def types(self, _=0):
        return {"type": self.random.sample(["string", "integer", "boolean", "null"], 2), "maxLength": 5, "minimum": 3}

    def reference(self, depth):
        name = f"d{len(self.defs)}"
        self.defs[name] = True  # its place, before what it holds takes the next
        self.defs[name] = self.any(depth)
        return {"$ref": f"#/$defs/{name}"}

    def recursive(self, _=0):
        name = f"d{len(self.defs)}"
        own = {"$ref": f"#/$defs/{name}"}
        self.defs[name] = {"type": "object", "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 99},
                                                            "next": {"anyOf": [own, {"type": "null"}]}},
                           "required": ["v", "next"]}
        return own
