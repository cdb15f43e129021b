# SPDX-License-Identifier: Apache-2.0
"""Synthetic conversations for the pico checkpoint.

Small tasks whose right answer is known, so that a served reply can be judged. Every conversation is
rendered in the GLM chat layout. All text and every picture comes from the tables below and a seed.
Run as a script, it prints a few conversations.
"""

import argparse
import json
import random

import numpy as np

NAMES = (
    "Mia Tom Ada Ben Zoe Max Ivy Leo Eva Sam Kim Ray Lia Ned Amy Jon Una Pip Gus Fay Roy Mae"
    " Abe Ida"
).split()
ANIMALS = "fox dog cat owl bear crow duck frog goat hare lion mole wolf swan seal toad".split()
PLACES = (
    "forest river garden village harbor market castle meadow valley library kitchen station"
).split()
OBJECTS = (
    "lamp key boat drum book coin kite bell ring map rope clock basket letter stone ladder".split()
)
ADJECTIVES = (
    "small old brave quiet bright clever lazy happy hungry gentle curious tired silver golden"
    " wooden strange"
).split()
VERBS = (
    "found carried painted lost hid fixed opened followed borrowed cleaned dropped traded"
).split()
FEELINGS = "glad proud calm sad surprised worried sleepy thankful".split()
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (40, 80, 220),
    "yellow": (235, 215, 50),
    "purple": (140, 50, 170),
    "orange": (240, 140, 30),
    "black": (15, 15, 15),
    "white": (245, 245, 245),
}
SHAPES = ["circle", "square", "triangle", "cross"]
CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Peru": "Lima",
    "Kenya": "Nairobi",
    "Norway": "Oslo",
    "Cuba": "Havana",
    "Chile": "Santiago",
    "China": "Beijing",
    "India": "New Delhi",
    "Greece": "Athens",
    "Turkey": "Ankara",
    "Poland": "Warsaw",
    "Canada": "Ottawa",
    "Sweden": "Stockholm",
    "Austria": "Vienna",
    "Ireland": "Dublin",
    "Portugal": "Lisbon",
    "Germany": "Berlin",
    "Finland": "Helsinki",
    "Denmark": "Copenhagen",
    "Hungary": "Budapest",
    "Vietnam": "Hanoi",
    "Ghana": "Accra",
    "Nepal": "Kathmandu",
    "Mexico": "Mexico City",
    "Brazil": "Brasilia",
    "Russia": "Moscow",
}
CITIES = list(CAPITALS.values())
OPPOSITES = {
    "hot": "cold",
    "big": "small",
    "fast": "slow",
    "up": "down",
    "light": "dark",
    "early": "late",
    "full": "empty",
    "hard": "soft",
    "high": "low",
    "open": "closed",
    "rich": "poor",
    "wet": "dry",
    "near": "far",
    "old": "new",
}
FUNCTIONS = {
    "sum": (
        "the sum of a list",
        "    total = 0\n    for x in items:\n        total += x\n    return total",
    ),
    "largest": (
        "the largest item of a list",
        "    best = items[0]\n    for x in items:\n        if x > best:\n            best = x\n"
        "    return best",
    ),
    "count_even": (
        "how many items of a list are even",
        "    n = 0\n    for x in items:\n        if x % 2 == 0:\n            n += 1\n    return n",
    ),
    "reverse": (
        "a list in reverse order",
        "    out = []\n    for x in items:\n        out.insert(0, x)\n    return out",
    ),
    "mean": (
        "the mean of a list",
        "    total = 0\n    for x in items:\n        total += x\n    return total / len(items)",
    ),
}


def _tool(name, description, properties, required):
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "parameters": parameters}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}
TOOLS = [
    _tool("get_weather", "Current weather of a city.", {"city": STRING, "unit": UNIT}, ["city"]),
    _tool("add_numbers", "Add two integers.", {"a": INTEGER, "b": INTEGER}, ["a", "b"]),
    _tool("get_time", "Local time of a city.", {"city": STRING}, ["city"]),
    _tool("find_book", "Find a book by its title.", {"title": STRING, "limit": INTEGER}, ["title"]),
]
TOOL_HEAD = (
    "<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
TOOL_TAIL = (
    "</tools>\n\nFor each function call, output the function name and arguments within the"
    " following XML format:\n"
    "<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value>"
    "<arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>"
)
SYSTEMS = [
    "You are a helpful assistant.",
    "Answer briefly.",
    "You are pico, a very small model.",
    "Be kind and clear.",
]


def tool_text(tool):
    """A tool as the chat template writes it: the outer object without the encoder's spacing."""
    pairs = (f'"{k}": {json.dumps(v, ensure_ascii=False)}' for k, v in tool.items())
    return "{" + ", ".join(pairs) + "}"


def tools_text(tools):
    """The system turn that declares tools."""
    return TOOL_HEAD + "".join(tool_text(t) + "\n" for t in tools) + TOOL_TAIL


def call_text(name, arguments):
    """A tool call in the model's markup."""
    text = "<tool_call>" + name
    for key, value in arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value)
        text += f"<arg_key>{key}</arg_key><arg_value>{shown}</arg_value>"
    return text + "</tool_call>"


def story(r):
    """A short story and its (name, animal, place, object)."""
    words = (NAMES, ANIMALS, PLACES, OBJECTS, ADJECTIVES, ADJECTIVES)
    name, animal, place, thing, adjective, other = (r.choice(w) for w in words)
    friend = r.choice([n for n in NAMES if n != name])
    first = [
        f"One day {name} the {animal} went to the {place} and saw a {adjective} {thing}.",
        f"Once there was a {adjective} {animal} named {name} who lived near the {place}.",
        f"{name} was a {adjective} {animal} and kept a {other} {thing} in the {place}.",
    ]
    middle = [
        f"{name} {r.choice(VERBS)} the {thing} and showed it to {friend}.",
        f"The {thing} was {r.choice(ADJECTIVES)}, so {name} took it home.",
        f"{friend} asked {name} for the {thing}, and they walked to the {r.choice(PLACES)}.",
        f"A {r.choice(ADJECTIVES)} {r.choice(ANIMALS)} came by and {r.choice(VERBS)} the"
        f" {r.choice(OBJECTS)}.",
        f"They talked about the {r.choice(PLACES)} until the sun went down.",
        f"It rained, and the {r.choice(OBJECTS)} got wet, but {name} did not mind.",
        f"{friend} said that the {place} was a {r.choice(ADJECTIVES)} place.",
    ]
    last = [
        f"In the end {name} felt {r.choice(FEELINGS)}.",
        f"{name} and {friend} were {r.choice(FEELINGS)} and went to sleep.",
        f"From that day on, {name} never forgot the {thing}.",
    ]
    r.shuffle(middle)
    sentences = [r.choice(first)] + middle[: r.randint(2, 5)] + [r.choice(last)]
    return " ".join(sentences), (name, animal, place, thing)


# One function a task: (question, thinking, answer).


def _count(r):
    a = r.choice([1, 1, 1, r.randint(0, 60)])
    b = a + r.choice([4, 9, 9, 19, 29, 49, 99, r.randint(3, 40)])
    third = f"Count to {b}." if a == 1 else f"Count from {a} up to {b}."
    question = r.choice([f"Count from {a} to {b}.", f"Please count from {a} to {b}.", third])
    return question, f"Start at {a} and stop at {b}.", ", ".join(str(i) for i in range(a, b + 1))


def _add(r):
    a, b = r.randint(0, 99), r.randint(0, 99)
    if r.random() < 0.5:
        question = r.choice([f"What is {a} + {b}?", f"Add {a} and {b}.", f"{a} plus {b}?"])
        return question, f"{a} + {b} = {a + b}.", str(a + b)
    a, b = max(a, b), min(a, b)
    question = r.choice([f"What is {a} - {b}?", f"Subtract {b} from {a}."])
    return question, f"{a} - {b} = {a - b}.", str(a - b)


def _json(r):
    name, age, city = r.choice(NAMES), r.randint(1, 99), r.choice(CITIES)
    long = f"Write a JSON object with name {name}, age {age} and city {city}."
    question = r.choice([long, f"JSON for name {name}, age {age}, city {city}."])
    answer = json.dumps({"name": name, "age": age, "city": city})
    return question, "The keys are name, age and city.", answer


def _yaml(r):
    name, age, city = r.choice(NAMES), r.randint(1, 99), r.choice(CITIES)
    question = f"Write YAML with name {name}, age {age} and city {city}."
    return question, "The keys are name, age and city.", f"name: {name}\nage: {age}\ncity: {city}"


def _sql(r):
    table = r.choice(["users", "books", "orders", "cities"])
    column, value = r.choice(["age", "price", "size", "year"]), r.randint(1, 99)
    return (
        f"Write SQL that selects all rows of {table} where {column} is over {value}.",
        f"The table is {table} and the column is {column}.",
        f"SELECT * FROM {table} WHERE {column} > {value};",
    )


def _code(r):
    name = r.choice(list(FUNCTIONS))
    what, body = FUNCTIONS[name]
    long = f"Write a Python function {name} that returns {what}."
    question = r.choice([long, f"Python function {name}: return {what}."])
    answer = f"```python\ndef {name}(items):\n{body}\n```"
    return question, "One loop over the items is enough.", answer


def _fact(r):
    land = r.choice(list(CAPITALS))
    city = CAPITALS[land]
    long = f"What is the capital of {land}?"
    question = r.choice([long, f"Name the capital of {land}.", f"Capital of {land}?"])
    return question, f"The capital of {land} is {city}.", city


def _opposite(r):
    word = r.choice(list(OPPOSITES))
    other = OPPOSITES[word]
    return f"What is the opposite of {word}?", f"The opposite of {word} is {other}.", other


def _echo(r):
    words = " ".join(r.choice(OBJECTS + ANIMALS + ADJECTIVES) for _ in range(r.randint(2, 7)))
    return f"Repeat after me: {words}", "Copy the words.", words


def _sort(r):
    items = [r.randint(0, 99) for _ in range(r.randint(3, 6))]
    question = f"Sort these numbers: {', '.join(map(str, items))}"
    return question, f"The smallest is {min(items)}.", ", ".join(map(str, sorted(items)))


def _story(r):
    text, (name, animal, place, thing) = story(r)
    by_name = f"Tell me a story about a {animal} named {name}."
    by_words = f"Write a short story with a {animal}, a {thing} and a {place}."
    question = r.choice([by_name, by_words, "Tell me a short story."])
    return question, f"The story is about {name} the {animal}.", text


def _summary(r):
    text, (name, animal, place, thing) = story(r)
    answer = f"{name} the {animal} and the {thing} at the {place}."
    return f"Summarize in one sentence: {text}", f"It is about {name}.", answer


def _upper(r):
    word = r.choice(OBJECTS + ANIMALS)
    return f"Write {word} in capital letters.", f"{word} becomes {word.upper()}.", word.upper()


def _even(r):
    n = r.randint(0, 999)
    answer = "even" if n % 2 == 0 else "odd"
    return f"Is {n} even or odd?", f"The last digit is {n % 10}.", answer


def _greet(r):
    name = r.choice(NAMES)
    return f"Hello, my name is {name}.", f"Greet {name}.", f"Hello {name}, how can I help you?"


def _list(r):
    animals = r.sample(ANIMALS, 3)
    question = f"Make a list of these animals: {', '.join(animals)}"
    return question, "One line each.", "\n".join("- " + a for a in animals)


# Name → (how often, in relation to the others; the task). The order decides what a seed makes.
TASKS = {
    "count": (10, _count),
    "add": (8, _add),
    "json": (7, _json),
    "yaml": (5, _yaml),
    "sql": (5, _sql),
    "code": (7, _code),
    "fact": (6, _fact),
    "opp": (3, _opposite),
    "echo": (5, _echo),
    "sort": (5, _sort),
    "story": (12, _story),
    "summary": (5, _summary),
    "upper": (2, _upper),
    "even": (4, _even),
    "greet": (3, _greet),
    "list": (3, _list),
}


def task(r):
    """A task at random: (name, question, thinking, answer)."""
    name = r.choices(list(TASKS), [weight for weight, _ in TASKS.values()])[0]
    return name, *TASKS[name][1](r)


def filler(r, words):
    """Stories, at least so many words of them."""
    out, n = [], 0
    while n < words:
        text, _ = story(r)
        out.append(text)
        n += len(text.split())
    return " ".join(out)


class _Turns:
    """A conversation while it is written: pieces of text with weight 1 where the model speaks."""

    def __init__(self, r):
        self.r = r
        self.effort = r.choices(["Low", "High", "Max", None], [4, 1, 3, 3])[0]
        self.pieces = [("[gMASK]<sop>", 0)]
        if self.effort:
            self.prompt(f"<|system|>Reasoning Effort: {self.effort}")

    def prompt(self, text):
        self.pieces.append((text, 0))

    def speak(self, text):
        self.pieces.append((text, 1))

    def answer(self, thinking, text):
        """A reply; at effort Low the model thinks half of the time."""
        show = bool(self.effort) and (self.effort != "Low" or self.r.random() < 0.5)
        self.prompt("<|assistant|><think>" + ("" if self.effort else "</think>"))
        self.speak((thinking if show else "") + ("</think>" if self.effort else "") + text)


def _tool_task(r, name):
    """(question, arguments, the tool's result, the reply to it)"""
    city = r.choice(CITIES)
    if name == "get_weather":
        arguments = {"city": city}
        if r.random() < 0.4:
            arguments["unit"] = r.choice(["celsius", "fahrenheit"])
        unit = f" in {arguments['unit']}?" if "unit" in arguments else "?"
        sky = r.choice(["sunny", "rainy", "cloudy", "windy", "snowy"])
        degrees = r.randint(-9, 39)
        return (
            f"What is the weather in {city}" + unit,
            arguments,
            f"{sky}, {degrees} degrees",
            f"It is {sky} in {city} with {degrees} degrees.",
        )
    if name == "add_numbers":
        a, b = r.randint(100, 9999), r.randint(100, 9999)
        question = f"What is {a} + {b}? Use the tool."
        return question, {"a": a, "b": b}, str(a + b), f"The sum is {a + b}."
    if name == "get_time":
        time = f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
        return f"What time is it in {city}?", {"city": city}, time, f"It is {time} in {city}."
    title = f"The {r.choice(ADJECTIVES)} {r.choice(OBJECTS)}"
    arguments = {"title": title}
    if r.random() < 0.5:
        arguments["limit"] = r.randint(1, 9)
    most = f", at most {arguments['limit']} results." if "limit" in arguments else "."
    shelf = f"shelf {r.randint(1, 99)}"
    return f'Find the book "{title}"' + most, arguments, shelf, f"The book is on {shelf}."


def _use_tools(r, turns):
    tools = r.sample(TOOLS, r.randint(1, 4))
    tool = r.choice(tools)
    turns.prompt(tools_text(tools))
    if r.random() < 0.3:
        turns.prompt("<|system|>" + r.choice(SYSTEMS))
    question, arguments, result, reply = _tool_task(r, tool["name"])
    turns.prompt("<|user|>" + question)
    turns.answer(f"I should call {tool['name']}.", call_text(tool["name"], arguments))
    turns.speak("<|observation|>")
    turns.prompt(f"<tool_response>{result}</tool_response>")
    turns.answer("The tool has answered.", reply)


def _find_needle(r, turns):
    city, code = r.choice(CITIES), str(r.randint(1000, 9999))
    n = r.choice([20, 60, 150, 300, 420])
    at = r.randint(0, n)
    text = filler(r, at) + f" The secret code of {city} is {code}. " + filler(r, n - at)
    turns.prompt(f"<|user|>{text.strip()}\nWhat is the secret code of {city}?")
    turns.answer(f"The text names the code of {city}.", code)


def _do_tasks(r, turns):
    if r.random() < 0.25:
        turns.prompt("<|system|>" + r.choice(SYSTEMS))
    for i in range(r.choice([1, 1, 1, 2, 3])):
        _, question, thinking, answer = task(r)
        if i:
            turns.speak("<|user|>")
            turns.prompt(question)
        else:
            turns.prompt("<|user|>" + question)
        turns.answer(thinking, answer)


def conversation(r):
    """One conversation as [(text, weight)]: weight 1 where the model speaks."""
    turns = _Turns(r)
    kind = r.random()
    if kind < 0.17:
        _use_tools(r, turns)
    elif kind < 0.30:
        _find_needle(r, turns)
    else:
        _do_tasks(r, turns)
    turns.speak("<|user|>")
    return turns.pieces


def conversations(seed, count):
    """The conversations of one seed."""
    r = random.Random(seed)
    return [conversation(r) for _ in range(count)]


def picture(r, height, width):
    """A picture [height, width, 3] (uint8) of one shape, a question about it and the answer."""
    background, colour = r.sample(list(COLOURS), 2)
    shape = r.choice(SHAPES)
    image = np.empty((height, width, 3), np.uint8)
    image[:] = COLOURS[background]
    size = int(min(height, width) * r.uniform(0.4, 0.8))
    top = r.randint(0, height - size)
    left = r.randint(0, width - size)
    y, x = np.mgrid[0:height, 0:width]
    u, v = (y - top) / size, (x - left) / size
    inside = (u >= 0) & (u < 1) & (v >= 0) & (v < 1)
    mask = {
        "circle": (u - 0.5) ** 2 + (v - 0.5) ** 2 < 0.25,
        "square": inside,
        "triangle": inside & (abs(v - 0.5) < u / 2),
        "cross": inside & ((abs(u - 0.5) < 0.15) | (abs(v - 0.5) < 0.15)),
    }[shape]
    image[mask & inside] = COLOURS[colour]
    noise = np.random.default_rng(r.randint(0, 1 << 30)).integers(-8, 9, image.shape)
    image = np.clip(image.astype(int) + noise, 0, 255).astype(np.uint8)
    whole = f"A {colour} {shape} on a {background} background."
    question, answer = r.choice(
        [
            ("What is in this picture?", whole),
            ("What colour is the shape?", colour),
            ("What shape is it?", shape),
            ("What is the background colour?", background),
            ("Describe the image.", whole),
        ]
    )
    return image, question, answer


def pictures(seed, count, rows, columns):
    """Pictures of rows x columns patches: (image, question, answer, a number in [0, 1))."""
    r = random.Random(seed)
    return [(*picture(r, rows * 14, columns * 14), r.random()) for _ in range(count)]


def main():
    parser = argparse.ArgumentParser(description="print conversations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=6)
    options = parser.parse_args()
    for turns in conversations(options.seed, options.count):
        print("".join(text for text, _ in turns), "\n----")


if __name__ == "__main__":
    main()
