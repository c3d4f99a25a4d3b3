"""Templates, each with one feature of Jinja or of Python that chat templates use."""

# These are there in every case.
VARIABLES = {
    "none_": None, "yes": True, "no": False, "zero": 0, "seven": 7, "minus": -3, "half": 0.5, "text": "Hello, World", "empty": "",
    "sly": "<s>x</s>", "blank": " \t a b \n", "words": "one two  three", "unicode": "é日本🙂ß", "quotes": "it's \"so\"\\\n", "html": "<a href='b'>&\"",
    "list": [3, 1, 2], "names": ["Bob", "ann", "Cid"], "nothing": [], "nested": [[1, 2], [3]], "mixed": [1, "a", None, True, 2.5],
    "dict": {"b": 1, "a": [1, {"x": None}], "C": "ä"}, "object": {}, "shadow": {"items": 1, "keys": 2, "get": 3, "pop": 4, "x y": 5},
    "people": [{"name": "Bob", "age": 30, "ok": True}, {"name": "ann", "age": 20}, {"name": "Cid", "age": 30, "ok": False}],
    "deep": {"a": {"b": [{"c": "found"}]}}, "floats": [0.1, 1.0, 1e16, 1.5e-7, 123456789.125, 1e100, -0.0],
}  # fmt: skip

# Each of these stands in {{ expression }}.
EXPRESSIONS = """
1 + 2 * 3 - 4
7 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 % 2
7.5 // -2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
10 ** 18 * 10
9223372036854775807 + 1
1 / 0
1.0 // 0
5 % 0
1_000 + 0
1e3
1.5e-3
0.1 + 0.2
100000000000000000000.0
floats
7 / 7
true + true
+seven
-text
'a' + 'b'
'a' + 1
1 + 'a'
'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1] ~ missing
'a' * 3
3 * 'ab'
'ab' * -1
[1] * 3
[1] + [2]
[1] + (2,)
(1, 2) + (3,)
list + nothing
dict + dict
'a' 'b' "c"
'\\n\\t\\\\\\'\\"\\x41\\u00e9\\U0001F642\\101\\q\\0'
"it's"
'"'
()
(1,)
(1, 2)
1, 2
[1, 'a', none, true, 1.5, ['b'], {'c': 1}]
{'a': 1, 'b': {'c': [1, 2]}}
{1: 'a', 1.0: 'b', true: 'c', none: 'd', (1, 2): 'e'}
{'a': 1, 'a': 2}
{[1]: 2}
[1, 2,]
{'a': 1,}
true and false
true or false
not true
not not yes
empty or 'x'
text and seven
none_ and missing.x
missing or 'default'
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
'1' == 1
'a' < 'b'
'a' < 'B'
'a' < 1
[1, 2] < [1, 3]
[1] == [1.0]
(1,) == [1]
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
none == none_
missing == missing2
missing == none
missing < 1
none < 1
1 != 2
'el' in text
'x' not in text
1 in list
'1' in list
'a' in dict
[1] in dict
1 in text
1 in none
'x' in missing
missing in list
missing in text
'a' if yes else 'b'
'a' if no else 'b'
'a' if no
('a' if no) is defined
'a' if no else 'b' if no else 'c'
text.upper()
text.lower()
unicode.upper()
'éÀ'.upper()
'éÀ'.lower()
text.swapcase()
text.capitalize()
'ÀB c'.capitalize()
'hello wORLD it\\'s'.title()
blank.strip()
blank.lstrip()
blank.rstrip()
'xxabxx'.strip('x')
'xyabyx'.lstrip('xy')
'abé'.rstrip('éb')
'a'.strip(none)
'\\u00a0\\u2003a\\x1c'.strip()
words.split()
words.split(' ')
words.split(' ', 1)
words.split(none, 1)
' a b c '.split(none, 1)
' a b '.split(none, 2)
'   '.split()
''.split()
''.split(',')
'a,b,,c'.split(',')
'a,b'.split('')
'a<s>b<s>c'.split('<s>')[-1]
words.rsplit(' ', 1)
' a b c '.rsplit(none, 1)
'aaa'.rsplit('aa')
'a,b,c'.split(',', maxsplit=1)
'a,b,c'.partition(',')
'a,b,c'.rpartition(',')
'abc'.partition(',')
'abc'.rpartition(',')
'a\\nb\\r\\nc\\rd\\x0be\\u2028f'.splitlines()
'a\\nb\\n'.splitlines(true)
text.startswith('Hell')
text.startswith(('x', 'He'))
text.endswith('World')
text.endswith(['d'])
text.startswith('llo', 2)
text.startswith('o', -1)
text.find('o')
text.find('o', 5)
text.find('zz')
text.rfind('o')
text.index('zz')
unicode.find('本')
text.count('l')
'aaa'.count('')
text.replace('l', 'L')
text.replace('l', 'L', 1)
'abc'.replace('', '-')
'aé'.replace('', '-', 2)
', '.join(names)
'-'.join('abc')
', '.join(list)
text.removeprefix('Hello')
text.removesuffix('ld')
'7'.zfill(3)
'-7'.zfill(4)
'a'.ljust(3) ~ '|'
'a'.rjust(3, '.')
'123'.isdigit()
'12a'.isdigit()
''.isdigit()
'٣'.isdigit()
'abcé'.isalpha()
'a1'.isalnum()
' \\n'.isspace()
'ab'.islower()
'AB1'.isupper()
'1'.isupper()
'é'.isascii()
'12'.isdecimal()
'{} and {}'.format(1, 'b')
'{1}{0}'.format('a', 'b')
'{x} {{}} {y[0]} {z.a}'.format(x=1, y=[2], z={'a': 3})
'{!r}'.format('a')
'{}'.format()
'{'.format(1)
'}'.format(1)
'{:>5}'.format(1)
'%s is %d, %.2f%%' % ('a', 3, 1.5)
'%s' % 'x'
'%(a)s' % {'a': 1}
'%5d|%-5s|%05d' % (3, 'a', 42)
'%d' % 'a'
'%s %s' % ('a',)
'%s' % ('a', 'b')
'%r' % ('it',)
'%d' % 3.9
'%s' % list
text.encode()
text.nope
text.nope()
text[0]
text[-1]
text[50]
text[1:4]
text[:-1]
text[::-1]
text[::2]
text[10:2:-3]
text[-100:100]
unicode[1:3]
unicode[3]
unicode[::-1]
list[0]
list[-1]
list[10]
list[1:]
list[::-1]
list[none:2]
list['a']
list[1.0]
list[:'a']
list[::0]
(1, 2, 3)[1:]
dict['a']
dict['zz']
dict.b
dict.zz
dict.zz.y
dict['a'][1]['x']
dict.get('b')
dict.get('zz')
dict.get('zz', 7)
dict.get()
dict.get([1])
dict.items()
dict.keys()
dict.values()
dict.items() | list
dict.keys() | list
dict.items()[0]
dict.copy()
dict.update({'a': 1})
dict.update is defined
dict.pop('a')
shadow.items()
shadow['items']
shadow['x y']
shadow.pop
shadow['pop']
shadow['keys']
list.append(1)
list.index(1)
list.index(9)
list.count(1)
none_.x
none_['x']
seven.x
missing.x
missing['x']
missing()
missing.x.y is defined
missing
missing + 1
missing ~ 'x'
-missing
missing | length
deep.a.b[0].c
deep['a'].b.0.c
deep.a.nope.c
range(3) | list
range(1, 7, 2) | list
range(3, 0, -1) | list
range(0)
range(5)[1]
range(5)[1:3] | list
range(1, 2, 0)
range(100001)
range('a')
range(5) | length
3 in range(5)
dict(a=1, b=2)
seven()
namespace(a=1).a
namespace({'a': 1}).a
namespace(a=1)['a']
namespace(a=1).b is defined
text is string
seven is string
missing is string
seven is number
half is number
yes is number
text is number
seven is integer
yes is integer
half is float
yes is boolean
zero is boolean
yes is true
1 is true
no is false
none_ is none
missing is none
missing is defined
missing is undefined
missing is not defined
text is defined
dict.zz is defined
dict is mapping
list is mapping
list is sequence
text is sequence
dict is sequence
missing is sequence
dict.items() is sequence
dict.items() is iterable
seven is iterable
text is iterable
(list | map('abs')) is sequence
seven is odd
seven is even
seven is divisibleby 7
seven is divisibleby(2)
'a' is odd
text is upper
'abc' is lower
'abc' is sameas 'abc'
yes is sameas true
1 is sameas true
1 is in list
seven is eq 7
seven is equalto(7)
seven is ne 7
seven is gt 5
seven is ge 7
seven is lt 5
seven is le(7)
seven is greaterthan 6
seven is lessthan 6
range is callable
text is callable
'upper' is filter
'nope' is filter
'odd' is test
text is escaped
seven is nope
yes and 'nope' is filter
not seven is even
seven is not even and yes
1 is number and 2 is number
text | upper
seven | upper
none_ | upper
text | lower
text | title
'hello-world (foo) [bar] {x} <y>' | title
text | capitalize
blank | trim
'xxaxx' | trim('x')
text | length
unicode | length
list | length
dict | count
seven | length
none_ | length
(list | map('abs')) | length
text | first
text | last
list | first
nothing | first
nothing | last
dict | first
dict | last
text | reverse
list | reverse | list
list | sort
names | sort
names | sort(case_sensitive=true)
names | sort(reverse=true)
people | sort(attribute='age') | map(attribute='name') | list
people | sort(true, attribute='name') | map(attribute='name') | list
mixed | sort
text | list
seven | list
none_ | list
names | join
names | join(', ')
list | join('-')
mixed | join('|')
people | join(', ', attribute='name')
missing | join
seven | join
missing | default('x')
none_ | default('x')
none_ | default('x', true)
empty | default('x', boolean=true)
missing | d
dict.zz | default([]) | length
list | map('string') | join('+')
names | map('upper') | list
people | map(attribute='name') | join(' ')
people | map(attribute='ok', default='?') | list
people | map(attribute='zz') | list
nested | map('first') | list
nested | map('sum') | list
names | map('nope') | list
names | map('replace', 'B', 'b') | list
people | selectattr('ok') | map(attribute='name') | list
people | selectattr('ok', 'defined') | list | length
people | selectattr('age', '==', 30) | map(attribute='name') | list
people | selectattr('age', 'equalto', 20) | list | length
people | rejectattr('age', 'gt', 25) | map(attribute='name') | list
people | selectattr('name', 'in', ['ann', 'Cid']) | map(attribute='name') | list
people | rejectattr('ok') | map(attribute='name') | list
mixed | select | list
mixed | reject | list
mixed | select('string') | list
list | select('odd') | list
list | reject('equalto', 2) | list
list | select('nope') | list
missing | select | list
list | sum
people | sum(attribute='age')
[[1], [2]] | sum(start=[])
names | sum
list | min
list | max
names | min
names | max
people | max(attribute='age')
nothing | max
mixed | max
['a', 'A', 'b', 'a'] | unique | list
['a', 'A'] | unique(true) | list
people | unique(attribute='age') | map(attribute='name') | list
[[1]] | unique | list
dict | dictsort
dict | dictsort(true)
dict | dictsort(reverse=true)
{'x': 2, 'y': 1} | dictsort(false, 'value')
{'x': 2, 1: 3} | dictsort
list | dictsort
missing | dictsort
dict | items | list
missing | items | list
(dict | items) is sequence
text | replace('l', 'L')
text | replace('l', 'L', 1)
seven | replace(7, 8)
'a\\nb\\n\\nc' | indent
'a\\nb\\n\\nc' | indent(2, true)
'a\\nb\\n\\nc\\n' | indent(2, blank=true)
'a\\nb' | indent('> ')
seven | indent
'12' | int
' 12 ' | int
'12.7' | int
'x' | int
'x' | int(5)
none_ | int
half | int
yes | int
'+5' | int
'1e3' | int
'1_0' | int
missing | int
'1.5' | float
'x' | float
'x' | float(2.5)
7 | float
7.5 | round
8.5 | round
2.675 | round(2)
7.1 | round(0, 'ceil')
7.19 | round(1, 'floor')
7 | round
'x' | round
minus | abs
'x' | abs
half | string
list | string
'%s-%s' | format('a', 'b')
'%(a)s' | format(a=1)
text | center(20) ~ '|'
'ab' | center(5) ~ '|'
'foo bar baz qux' | truncate(9)
'foo bar baz qux' | truncate(9, true)
'foo bar baz qux' | truncate(11)
'foo bar baz qux' | truncate(11, false, '...', 0)
text | truncate(5, end='!')
'two words, 3rd_word' | wordcount
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3] | batch(2, 'x') | list
[1, 2, 3, 4, 5] | slice(3) | list
[1, 2, 3, 4, 5] | slice(3, 'x') | list
'a b/c?é' | urlencode
html | escape
html | e
html | safe
'<b>' | safe ~ '<i>'
('<b>' | safe) + '<i>'
'<i>' + ('<b>' | safe)
('<b>' | safe) + ('<i>' | safe)
('<b>' | safe) is string
(('<b>' | safe) | upper) + '<'
(('<b>' | safe).strip('<')) + '<'
[('<b>' | safe)]
html | tojson
quotes | tojson
unicode | tojson
unicode | tojson(ensure_ascii=true)
'\\x7f\\x1f\\u2028' | tojson
'\\x7f\\x1f\\u2028' | tojson(ensure_ascii=true)
dict | tojson
dict | tojson(indent=2)
dict | tojson(indent='--')
dict | tojson(indent=0)
dict | tojson(separators=(',', ':'))
dict | tojson(indent=1, separators=(';', '='))
{'b': 1, 'a': 2} | tojson(sort_keys=true)
{'b': 1, 2: 2} | tojson(sort_keys=true)
{1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson
{(1, 2): 1} | tojson
[] | tojson(indent=2)
{} | tojson(indent=2)
floats | tojson
mixed | tojson
(1, 2) | tojson
missing | tojson
[missing] | tojson
range(2) | tojson
range | tojson
dict.items() | tojson
none_ | tojson
dict | tojson(true)
dict | tojson(false, 2)
dict | tojson(nope=1)
quotes
[quotes]
[html, blank, unicode]
['it\\'s', 'say "x"', '\\u00a0\\u200b\\x00\\x7f\\U000e0001']
[missing]
[none_, yes, half]
none_ | attr('x') is defined
text | nope
'a' if yes else 'b' | nope
1 if no else ('x' | nope)
1 if no else (2 is nope)
text is
text | upper | lower | length
(text | upper)[0]
text | upper[0]
[1, 2, 3][1:] | first
-1 | abs
-text | length
not seven > 5
not 'x' in text
1 in [1] == true
'a' in 'abc' and 'b' in 'abc'
1 if yes and no else 2 if yes
self
loop
caller()
varargs
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y, %A %B %H:%M:%S %j')
raise_exception('No: ' ~ seven)
raise_exception()
undefined
None
True
False is false
text . upper ( )
{'a': missing}
{'a': missing}.a is defined
list[0] if list else 'none'
people[0].name
people[-1]['age']
people[5].name
people[5] is defined
people[5].name is defined
"""

TEMPLATES = [
    "", "text", "a\n", "a\n\n", "a\r\nb\rc\n", "{", "{ {", "}}", "%}", "{{", "{{ 1", "{{ 1 }", "{%", "{% if", "{% if yes", "{#", "{# a", "{{}}", "{{ }}", "{%%}",
    "{{ ) }}", "{{ (1] }}", "{{ 'a }}", "{{ $ }}", "{{ a b }}", "{{ 1 2 }}", "{{ . }}", "{{ a. }}", "{{ a[ }}", "{{ f(a=1, 2) }}", "{{ f(**a, *b) }}", "{{ 1 + }}",
    "{{ {'a'} }}", "{{ [1 2] }}", "{{ 'a' if }}", "{{ a is }}", "{{ a | }}", "{{ a | 1 }}", "{{ not }}", "{% nope %}", "{% endif %}", "{% else %}", "{% if yes %}",
    "{% if yes %}{% endfor %}", "{% for %}", "{% for a %}{% endfor %}", "{% for a in %}{% endfor %}", "{% for 1 in list %}{% endfor %}", "{% set %}", "{% set 1 = 2 %}",
    "{% set a %}", "{% set a = %}", "{% macro %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{% break %}", "{% if yes %}{% break %}{% endif %}",
    "{% if %}x{% endif %}", "{% call 1 %}{% endcall %}", "{% raw %}", "{% endraw %}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}",
    "{% block a %}x{% endblock %}", "{{ \"\\x4\" }}", "{{ 1if yes }}", "{{ 007 }}", "{{ 1__0 }}", "{{ a.b.c. }}",
    # These have comments, raw blocks and white space.
    "a{# b #}c", "a {#- b -#} c", "a\n  {# b #}\n  c", "a\n  {#+ b +#}\n  c", "{# {% if %} {{ }} #}x", "{% raw %}{{ a }}{% if %}{# #}{% endraw %}", "{%- raw -%} {{ a }} {%- endraw -%} x",
    "a {% raw %}\n x \n{% endraw %}\n b", "a\n  {% raw %}\n x\n  {% endraw %}\n b", "{% raw %}a{% endraw +%}\nb",
    "a {{ 1 }} b", "a {{- 1 }} b", "a {{ 1 -}} b", "a\n{{- 1 -}}\n b", "a\n  {{ 1 }}\n  b", "a {{+1}} b", "a {{ 1 }}\nb",
    "{% if yes %}\na\n{% endif %}\nb", "{% if yes -%}\n a\n{%- endif %}\nb", "  {% if yes %}\n  a\n  {% endif %}\nb", "x  {% if yes %}\n  a\n  {% endif %}\nb",
    "  {%+ if yes %}\n  a\n  {%+ endif +%}\nb", "\t {% if yes %}x{% endif %}", "a\n \n  {%- if yes %} x{% endif %}", "{% if yes %}x{% endif -%} \n\t y", "{% if yes %}\r\nx{% endif %}",
    "{{ 1 }}\n  {% if yes %}x{% endif %}", "{% if yes %}{% endif %}  {% if yes %}x{% endif %}", "{% if yes %}\n{% endif %}  {% if yes %}x{% endif %}",
    "{{- 'a' -}}  {%- if yes -%}  b  {%- endif -%}  c", "a\u00a0{%- if yes %}b{% endif %}", "{% if yes %}\n\nx{% endif %}", "{{ 'a\nb' }}", "{{ {'a': {'b': 1}} }}", "{{ '}}' }}", "{{ '%}' }}{% if '%}' %}x{% endif %}",
    # These have conditions.
    "{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if 1, %}t{% endif %}",
    "{% if no %}{{ 'x' | nope }}{% endif %}ok", "{% if no %}{{ 'x' is nope }}{% endif %}ok", "{% if yes %}{{ 'x' | nope }}{% endif %}", "{% if no %}{% for a in list %}{{ a | nope }}{% endfor %}{% endif %}",
    "{% for a in list %}{% if no %}{{ a | nope }}{% endif %}{% endfor %}ok", "{% for a in nothing %}{{ a | nope }}{% endfor %}",
    "{% for v in [none, 0, 0.0, '', [], {}, (), false, missing, 1, 'a', [0], range(0), range(1)] %}{{ 1 if v else 0 }}{% endfor %}",
    # These have loops.
    "{% for a in list %}{{ a }},{% endfor %}", "{% for a in nothing %}{{ a }}{% else %}none{% endfor %}", "{% for a in list %}{{ a }}{% else %}none{% endfor %}",
    "{% for a in missing %}x{% else %}none{% endfor %}", "{% for a in seven %}x{% endfor %}", "{% for a in none_ %}x{% endfor %}", "{% for c in 'aé' %}[{{ c }}]{% endfor %}",
    "{% for k in dict %}{{ k }}{% endfor %}", "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in dict | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in nested %}{{ a }}{% endfor %}", "{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for a in list %}{{ loop.previtem }}<{{ a }}<{{ loop.nextitem }};{% endfor %}", "{% for a in list %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}", "{% for a in list %}{{ loop.cycle('x', 'y') }}{% endfor %}",
    "{% for a in list %}{{ loop.nope is defined }}{% endfor %}", "{% for a in list %}{{ loop | length }}{% endfor %}", "{% for a in list %}{{ loop.changed(a) }}{% endfor %}", "{% for a in list recursive %}{{ a }}{% endfor %}",
    "{% for a in list if a > 1 %}{{ loop.index }}:{{ a }};{% endfor %}", "{% for a in list if a > 5 %}{{ a }}{% else %}none{% endfor %}", "{% for p in people if p.ok %}{{ p.name }}{% endfor %}",
    "{% for a in list %}{% if a == 1 %}{% break %}{% endif %}{{ a }}{% endfor %}", "{% for a in list %}{% if a == 1 %}{% continue %}{% endif %}{{ a }}{% endfor %}", "{% for a in list %}{% for b in list %}{% if b == 1 %}{% break %}{% endif %}{{ a }}{{ b }};{% endfor %}{% endfor %}",
    "{% for a in nested %}{% for b in a %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for a in list %}{% set x = a %}{% endfor %}{{ x }}", "{% set x = 0 %}{% for a in list %}{% set x = x + a %}{{ x }},{% endfor %}{{ x }}",
    "{% for a in list %}{{ a }}{% endfor %}{{ a }}", "{% set a = 9 %}{% for a in list %}{% endfor %}{{ a }}", "{% set ns = namespace(l=0) %}{% for a in list %}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}{{ ns.l.last }}{{ ns.l.nextitem is defined }}",
    "{% for i in range(3) %}{{ i }}{% endfor %}", "{% for i in range(3) if i is odd %}{{ i }}{% endfor %}", "{% set it = list | map('abs') %}{{ it | list }}{{ it | list }}", "{% set it = people | selectattr('zz') %}{{ 'full' if it else 'empty' }}",
    "{% for a in list[::-1] %}{{ a }}{% endfor %}", "{% for a in list | reverse %}{{ a }}{% endfor %}", "{% for a in (1, 2) %}{{ a }}{% endfor %}", "{% for a in 1, 2 %}{{ a }}{% endfor %}",
    # These set variables.
    "{% set a = 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set a, b = list %}", "{% set a = 1, 2 %}{{ a }}", "{% set a %}x{{ seven }}{% endset %}{{ a }}|{{ a | length }}", "{% set a | upper | trim %} x {% endset %}{{ a }}",
    "{% set a %}{% set b = 1 %}{% endset %}{{ b }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}", "{% set ns = namespace(a=1, b=[]) %}{% for x in list %}{% set ns.a = ns.a + x %}{% set ns.b = ns.b + [x] %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% set dict.a = 1 %}", "{% set nope.a = 1 %}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace() %}{% set ns.a %}x{% endset %}{{ ns.a }}", "{% set ns = namespace(a=1) %}{{ ns.zz is defined }}{{ ns['a'] }}",
    "{% if yes %}{% set a = 1 %}{% endif %}{{ a }}", "{% if no %}{% set seven = 1 %}{% endif %}{{ seven }}", "{% set seven = seven + 1 %}{{ seven }}", "{% set seven %}{{ seven }}!{% endset %}{{ seven }}", "{% set loop = 1 %}{{ loop }}", "{% set true = 1 %}",
    "{% with a = 1, b = seven %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% filter upper %}a{{ text }}{% endfilter %}", "{% filter trim | upper %} a {% endfilter %}", "{% filter replace('a', 'b') %}aXa{% endfilter %}", "{% print 1, 2 %}", "{% generation %}a{{ seven }}{% endgeneration %}b", "x\n{% generation %}\na\n{% endgeneration %}\nb",
    # These have macros.
    "{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(b=4, a=5) }}|{{ f() }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(3) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f(a) %}{{ a }}{{ varargs | length }}{% endmacro %}{{ f(1, 2, 3) }}", "{% macro f(a) %}{{ kwargs.z }}{% endmacro %}{{ f(1, z=3) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}",
    "{% macro f() %}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{{ x }}", "{% for a in list %}{% macro f() %}{{ a }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}", "{{ f(1) }}{% macro f(a) %}{% endmacro %}",
    "{% macro f() %} a {% endmacro %}[{{ f() }}][{{ f() | trim }}]{{ f() is string }}", "{% macro f() %}\n  a\n{% endmacro %}{{ f() }}", "{% macro outer(x) %}{% macro inner(y) %}{{ x }}{{ y }}{% endmacro %}{{ inner(2) }}{% endmacro %}{{ outer(1) }}{{ inner is defined }}",
    "{% macro f() %}{{ caller() }}!{% endmacro %}{% call f() %}x{{ seven }}{% endcall %}", "{% macro f() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}",
    "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f(l) %}{% for i in l %}<{{ caller(i) }}>{% endfor %}{% endmacro %}{% call(i) f(list) %}{{ i * 2 }}{% endcall %}", "{% macro f() %}x{% endmacro %}{% set g = f %}{{ g() }}{{ f }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}{{ f(*[1, 2]) }}",
    "{% set ns = namespace() %}{% macro f() %}{% set ns.x = 1 %}{% endmacro %}{{ f() }}{{ ns.x }}", "{% macro f(a=missing) %}{{ a is defined }}{% endmacro %}{{ f() }}", "{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}{{ f(missing) }}",
    # Names that are set later are undefined in blocks before.
    "{% macro f() %}{{ seven }}{% endmacro %}{{ f() }}{% set seven = 1 %}", "{% for a in [1] %}{{ seven }}{% endfor %}{% set seven = 1 %}", "{% for a in [1] %}{{ q }}{% set q = 1 %}{% endfor %}", "{% for a in [1, 2] %}{{ seven }}{% set seven = 1 %}{% endfor %}",
    "{% for a in [1, 2] %}{% for b in [1] %}{{ seven }}{% endfor %}{% set seven = 1 %}{% endfor %}", "{% if yes %}{% set seven = 1 %}{% endif %}{% for a in [1] %}{{ seven }}{% endfor %}", "{{ seven }}{% for a in [1] %}{{ seven }}{% endfor %}{% set seven = 1 %}",
    "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}g{% endmacro %}{{ f() }}",
]  # fmt: skip


def cases():
    for expression in EXPRESSIONS.strip().split("\n"):
        yield "{{ " + expression + " }}"
    yield from TEMPLATES
