"""The small tasks of `benchmarks/choosing.py`, written for this book: prompts and what counts as right."""

import random

_random = random.Random(0)


def _pairs(low, high, count):
    every = [(a, b) for a in range(low, high + 1) for b in range(low, high + 1)]
    return _random.sample(every, count)


# 20 sums of one digit and 20 of two, drawn once with the seed above, none twice.
ARITHMETIC = {"one digit": _pairs(2, 9, 20), "two digits": _pairs(11, 49, 20)}
ARITHMETIC_SHOTS = [(3, 4), (21, 7)]

# question: a pattern that a right answer holds, capital letters or not
FACTS = {
    "What is the capital of France?": "Paris",
    "What is the capital of Japan?": "Tokyo",
    "What is the capital of Spain?": "Madrid",
    "What is the capital of Australia?": "Canberra",
    "Which planet is known as the red planet?": "Mars",
    "What is the largest planet of the solar system?": "Jupiter",
    "What is the largest ocean on Earth?": "Pacific",
    "Who wrote Romeo and Juliet?": "Shakespeare",
    "Who wrote Pride and Prejudice?": "Austen",
    "Who painted the Mona Lisa?": "Leonardo|da Vinci",
    "What is the chemical symbol of gold?": r"\bAu\b",
    "What is the chemical formula of water?": "H2O|H₂O",
    "How many days are in a week?": r"\b(7|seven)\b",
    "How many legs does a spider have?": r"\b(8|eight)\b",
    "In which year did the Second World War end?": "1945",
    "On which continent is Egypt?": "Africa",
    "What is the tallest mountain on Earth?": "Everest",
    "Which gas do plants take in for photosynthesis?": "carbon dioxide|CO2|CO₂",
    "What is the freezing point of water in degrees Celsius?": r"\b(0|zero)\b",
    "Which language is spoken in Brazil?": "Portuguese",
}

OPENINGS = [
    "Write the beginning of a story about a lighthouse keeper.",
    "Write the beginning of a story about a lost key.",
    "Write the beginning of a story about a river in winter.",
    "Write the beginning of a story about two rival bakers.",
    "Write the beginning of a story about a train that never stops.",
    "Write the beginning of a story about a clock maker.",
    "Write the beginning of a story about a garden on the moon.",
    "Write the beginning of a story about an old map.",
    "Write the beginning of a story about a talking fox.",
    "Write the beginning of a story about the last library.",
]

JSON_KEYS = {
    "a person": ["name", "age"],
    "a book": ["title", "author"],
    "a city": ["name", "country"],
    "a car": ["brand", "year"],
    "a film": ["title", "year"],
    "an animal": ["species", "legs"],
    "a meal": ["name", "price"],
    "a song": ["title", "artist"],
}

TOOL_CALLS = {
    "What is the weather in Rome?": "weather",
    "Is it raining in Oslo today?": "weather",
    "How warm is it in Cairo?": "weather",
    "Will it snow in Bern tomorrow?": "weather",
    "What is 12 times 31?": "calculator",
    "Add 250 and 175.": "calculator",
    "Divide 96 by 8.": "calculator",
    "What is the square of 14?": "calculator",
}
TOOL_PROMPT = (
    'You have two tools, "weather" and "calculator". Answer with one JSON object only, with the keys "tool" and '
    '"input". '
)
TOOL_SHOTS = [
    ("What is the weather in Paris?", '{"tool": "weather", "input": "Paris"}'),
    ("What is 3 plus 4?", '{"tool": "calculator", "input": "3 + 4"}'),
]

# signature, what it does, expressions that must all be true
CODE = [
    ("add(a, b)", "returns the sum of a and b", ["add(2, 3) == 5", "add(-1, 1) == 0"]),
    ("maximum(a, b)", "returns the larger of a and b", ["maximum(2, 3) == 3", "maximum(5, -1) == 5"]),
    ("is_even(n)", "returns True if n is even, else False", ["is_even(4) is True", "is_even(7) is False"]),
    ("square(x)", "returns x squared", ["square(3) == 9", "square(-2) == 4"]),
    ("reverse(text)", "returns the string text reversed", ["reverse('abc') == 'cba'", "reverse('') == ''"]),
    (
        "count_vowels(text)",
        "returns how many vowels text has",
        ["count_vowels('banana') == 3", "count_vowels('xyz') == 0"],
    ),
    ("factorial(n)", "returns the factorial of n", ["factorial(5) == 120", "factorial(0) == 1"]),
    ("last(items)", "returns the last element of a list", ["last([1, 2, 3]) == 3", "last(['x']) == 'x'"]),
    ("mean(numbers)", "returns the mean of a list of numbers", ["mean([1, 2, 3]) == 2", "mean([4]) == 4"]),
    ("fizz(n)", "returns 'fizz' if n is divisible by 3, else n", ["fizz(9) == 'fizz'", "fizz(4) == 4"]),
]

CHAT = [
    "How can I fall asleep more easily?",
    "Give me a tip for learning to cook.",
    "Why is the sky blue?",
    "How do I start running?",
    "What should I pack for a day at the beach?",
    "How do I write a thank-you note?",
    "Explain what a budget is.",
    "How can I be more punctual?",
]

TRANSLATION_SHOTS = [("Good morning.", "Bonjour."), ("I like bread.", "J'aime le pain.")]
TRANSLATION = {
    "Thank you very much.": "Merci beaucoup.",
    "Where is the station?": "Où est la gare ?",
    "My name is Anna.": "Je m'appelle Anna.",
    "The cat is black.": "Le chat est noir.",
    "I do not understand.": "Je ne comprends pas.",
    "The book is on the table.": "Le livre est sur la table.",
    "We are in the house.": "Nous sommes dans la maison.",
    "It is cold today.": "Il fait froid aujourd'hui.",
    "She drinks water.": "Elle boit de l'eau.",
    "Good night, my friend.": "Bonne nuit, mon ami.",
}

# passage, reference
SUMMARIES = [
    (
        "The old bridge over the river was closed on Monday after engineers found cracks in two of its "
        "pillars. Drivers must use the northern road, which adds twenty minutes to the journey. Repairs will "
        "take until spring.",
        "The old bridge is closed for repairs until spring because of cracks in its pillars.",
    ),
    (
        "Maria planted tomatoes, beans and basil on her balcony in May. She watered them every evening. By "
        "August she had more vegetables than she could eat, so she gave baskets of them to her neighbours.",
        "Maria grew so many vegetables on her balcony that she gave some to her neighbours.",
    ),
    (
        "The museum has bought a painting of the harbour by a local artist. It was lost for sixty years and "
        "found in an attic last summer. Visitors can see it from the first of June.",
        "The museum will show a painting of the harbour that was lost for sixty years and found in an attic.",
    ),
    (
        "Scientists counted the birds of the island for ten years. The number of puffins fell by half, while "
        "gulls doubled. They think that warmer water has driven away the small fish that puffins eat.",
        "Puffins on the island fell by half in ten years, perhaps because warmer water drove away their fish.",
    ),
    (
        "The school will start half an hour later from September. Teachers hope that pupils will sleep longer "
        "and learn better. Some parents are unhappy, because they must be at work by eight.",
        "The school will start half an hour later so that pupils sleep longer, which some parents dislike.",
    ),
    (
        "A small bakery in the village won the prize for the best bread in the country. Its owner uses an "
        "oven that his grandfather built and lets the dough rest for two days. Now people queue at six in the "
        "morning.",
        "A village bakery with an old oven won the prize for the best bread in the country.",
    ),
]
